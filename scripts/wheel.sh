#!/bin/bash
# usage: wheel.sh [VERSION...]
# Builds build/dist/penstock-*.whl for this platform: the package, the binary, and the extension for the named versions
# of DuckDB (all of scripts/duckdb-versions.tsv where none is named), each one file with DuckDB's core inside. From a
# staged copy, so that the checkout's package keeps taking its files from build/. auditwheel decides the tag: the oldest
# platform on which the machine code in it runs. The same files give the same wheel, whenever and wherever. WHEEL_PYTHON
# has pip; it is that of build/venv where none is named.
. "$(dirname "$0")/duckdb-lib.sh"
cd "$ROOT"
WHEEL_BYTES_MAX=$((60 * 1000 * 1000))
python=${WHEEL_PYTHON:-build/venv/bin/python}
versions=("$@")
[ ${#versions[@]} -gt 0 ] || mapfile -t versions < <(duckdb_versions)
for version in "${versions[@]}"; do need_version "$version"; done
[ -x build/penstock ] || die "there is no build/penstock: run make build first"

for version in "${versions[@]}"; do LINK=static scripts/duckdb-build-extension.sh "$version"; done

stage=$ROOT/build/wheel
native=$stage/src/penstock/_native
rm -rf "$stage"
mkdir -p "$stage" build/dist
cp -r python/pyproject.toml python/setup.py python/build_backend.py python/README.md python/src "$stage/"
rm -rf "$stage"/src/*.egg-info
mkdir -p "$native"
strip --strip-unneeded -o "$native/penstock" build/penstock
for version in "${versions[@]}"; do
  mkdir -p "$native/duckdb/v$version"
  cp "build/duckdb/v$version/penstock.duckdb_extension" "$native/duckdb/v$version/"
done
# With the terms of all that is compiled in. The files of a package have the time of the commit.
SOURCE_DATE_EPOCH=$(source_date)
export SOURCE_DATE_EPOCH
cp LICENSE "$stage/"
python3 scripts/notices.py "${versions[@]}" >"$stage/LICENSE-THIRD-PARTY.txt"
chmod -R u=rwX,go=rX "$stage"

tools=$(wheel_tools "$python")
rm -rf "$stage/dist" build/dist/penstock-*.whl
PYTHONPATH=$tools while_saying "packing the wheel" "$python" -m pip wheel -q --no-deps --no-build-isolation \
  -w "$stage/dist" "$stage"
wheel=$(echo "$stage"/dist/penstock-*.whl)
shown=$(PYTHONPATH=$tools "$python" -m auditwheel show "$wheel")
tag=$(tr '\n' ' ' <<<"$shown" | grep -oE 'manylinux_[0-9]+_[0-9]+_[a-z0-9_]+' | head -n 1) ||
  die "auditwheel finds no manylinux tag for this wheel: $shown"
PYTHONPATH=$tools "$python" -m wheel tags --remove --platform-tag "$tag" "$wheel" >/dev/null
wheel=$(echo "$stage"/dist/penstock-*.whl)
bytes=$(stat -c %s "$wheel")
[ "$bytes" -le "$WHEEL_BYTES_MAX" ] || die "the wheel has $bytes bytes, more than the $WHEEL_BYTES_MAX that it may have"
mv "$wheel" build/dist/
rm -rf "$stage"
ls -l build/dist/penstock-*.whl
