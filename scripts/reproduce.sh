#!/bin/bash
# usage: reproduce.sh [VERSION of DuckDB...]
# Builds the commit twice, in two checkouts with nothing in them, and compares what users get byte for byte: the binary,
# and the extension for the named versions of DuckDB (the newest where none is named). By hand, half an hour on two cores:
# a build of CI has no time for a second one. What lies in $CACHE serves both: DuckDB's core, and the compiler's profile.
. "$(dirname "$0")/duckdb-lib.sh"
cd "$ROOT"
versions=("$@")
[ ${#versions[@]} -gt 0 ] || versions=("$(duckdb_versions | head -n 1)")
for version in "${versions[@]}"; do need_version "$version"; done
need_rust
need "$CXX" g++
commit=$(git rev-parse HEAD) || die "this is no checkout of git"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Names of different length, so that a path that is left in the bytes moves what lies behind it.
for name in one another; do
  git clone -q --shared "$ROOT" "$work/$name"
  git -C "$work/$name" checkout -q "$commit"
  say "build of ${commit:0:12} in $work/$name"
  (
    cd "$work/$name"
    unset CARGO_TARGET_DIR
    scripts/release.sh
    mkdir -p made
    strip --strip-unneeded -o made/penstock target/release/penstock
    for version in "${versions[@]}"; do
      PENSTOCK_FFI_READY=1 scripts/duckdb-build-extension.sh "$version"
      cp "build/duckdb/v$version/penstock.duckdb_extension" "made/v$version.duckdb_extension"
    done
  )
  mv "$work/$name/made" "$work/made-$name"
  # Two builds at once take 10 GB.
  rm -rf "${work:?}/$name"
done
differ=()
for path in "$work"/made-one/*; do
  name=$(basename "$path")
  if cmp "$path" "$work/made-another/$name"; then
    (cd "$work/made-one" && sha256sum "$name")
  else
    differ+=("$name")
  fi
done
[ ${#differ[@]} = 0 ] || die "two builds of ${commit:0:12} differ in: ${differ[*]}"
say "two builds of ${commit:0:12} are equal"
