#!/bin/bash
# usage: wheel.sh [VERSION...]
# Builds build/dist/penstock-*.whl for this platform: the package, the binary, and the extension for the named versions
# of DuckDB (all of scripts/duckdb-versions.tsv where none is named), each one file with DuckDB's core inside. From a
# staged copy, so that the checkout's package keeps taking its files from build/. auditwheel decides the tag: the oldest
# platform on which the machine code in it runs.
. "$(dirname "$0")/duckdb-lib.sh"
cd "$ROOT"
WHEEL_BYTES_MAX=$((60 * 1000 * 1000))
versions=("$@")
[ ${#versions[@]} -gt 0 ] || mapfile -t versions < <(duckdb_versions)
for version in "${versions[@]}"; do need_version "$version"; done
[ -x build/penstock ] || die "there is no build/penstock: run make build first"

for version in "${versions[@]}"; do LINK=static scripts/duckdb-build-extension.sh "$version"; done

stage=$ROOT/build/wheel
native=$stage/src/penstock/_native
rm -rf "$stage"
mkdir -p "$stage" build/dist
cp -r python/pyproject.toml python/setup.py python/README.md python/src "$stage/"
rm -rf "$stage"/src/*.egg-info
mkdir -p "$native"
strip --strip-unneeded -o "$native/penstock" build/penstock
for version in "${versions[@]}"; do
  mkdir -p "$native/duckdb/v$version"
  cp "build/duckdb/v$version/penstock.duckdb_extension" "$native/duckdb/v$version/"
done

# What packs it and tells its tag, without an environment of its own.
requirements=scripts/requirements/wheel.txt
tools=$CACHE/wheel-tools-$(sha256sum "$requirements" | cut -c1-12)
if [ ! -d "$tools" ]; then
  rm -rf "$tools.part"
  while_saying "packages that make the wheel" build/venv/bin/python -m pip install -q --target "$tools.part" -r "$requirements"
  mv -T "$tools.part" "$tools"
fi
rm -rf "$stage/dist" build/dist/penstock-*.whl
PYTHONPATH=$tools while_saying "packing the wheel" build/venv/bin/python -m pip wheel -q --no-deps --no-build-isolation \
  -w "$stage/dist" "$stage"
wheel=$(echo "$stage"/dist/penstock-*.whl)
shown=$(PYTHONPATH=$tools build/venv/bin/python -m auditwheel show "$wheel")
tag=$(tr '\n' ' ' <<<"$shown" | grep -oE 'manylinux_[0-9]+_[0-9]+_[a-z0-9_]+' | head -n 1) ||
  die "auditwheel finds no manylinux tag for this wheel: $shown"
PYTHONPATH=$tools build/venv/bin/python -m wheel tags --remove --platform-tag "$tag" "$wheel" >/dev/null
wheel=$(echo "$stage"/dist/penstock-*.whl)
bytes=$(stat -c %s "$wheel")
[ "$bytes" -le "$WHEEL_BYTES_MAX" ] || die "the wheel has $bytes bytes, more than the $WHEEL_BYTES_MAX that it may have"
mv "$wheel" build/dist/
rm -rf "$stage"
ls -l build/dist/penstock-*.whl
