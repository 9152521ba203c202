#!/bin/bash
# usage: duckdb-build-extension.sh [VERSION] [RUST_PROFILE]
# Builds build/duckdb/vVERSION/penstock.duckdb_extension. RUST_PROFILE is release (default) or debug. LINK is
#   static   one file with the parts of DuckDB's core that it calls; the core is compiled once per version (default)
#   shared   a developer's short cut: needs the ready libduckdb.so that is put beside it, and is never shipped
. "$(dirname "$0")/duckdb-lib.sh"
cd "$ROOT"
version=${1:-$(duckdb_versions | head -n 1)}
profile=${2:-release}
need_cxx
need_version "$version"
link=${LINK:-static}
# Tested on the first; nothing here is of one of them only.
[[ "$(uname -sm)" =~ ^Linux\ (x86_64|aarch64)$ ]] ||
  die "the extension is built on Linux x86_64 or aarch64, this is $(uname -sm)"

case $link in
shared)
  library=$(scripts/duckdb-sources.sh library "$version")
  core=(-L"$library" -lduckdb -Wl,-rpath,'$ORIGIN')
  ;;
static)
  core=$(scripts/duckdb-core.sh "$version")
  core=(-Wl,--start-group "$core"/*.a -Wl,--end-group)
  ;;
*) die "LINK is shared or static, not $link" ;;
esac
objects=build/duckdb/.objects-v$version
out=build/duckdb/v$version
mkdir -p "$objects" "$out"
mapfile -t includes < <(shim_includes "$version")

library_of_the_engine() {
  # build.sh has built it together with the binaries.
  [ -z "${PENSTOCK_FFI_READY:-}" ] || return 0
  if [ "$profile" = release ]; then scripts/release.sh; else cargo build --quiet -p penstock-ffi; fi
}
library_of_the_engine &
rust=$!
# As in release.sh: no place of this machine's is in what is made.
maps=(-ffile-prefix-map="$ROOT=penstock" -ffile-prefix-map="$CACHE=cache")
# The shim is compiled again only when it or the compiler changed.
stamp=$({ "$CXX" --version; echo "${CXX_FLAGS[@]}" "${maps[@]}" "${includes[@]}"; cat duckdb/src/*.cpp duckdb/src/include/* \
  duckdb/ffi/include/penstock.h; } | sha256sum)
if [ "$stamp" != "$(cat "$objects/stamp" 2>/dev/null)" ]; then
  # What is cut off has no stamp, and not that of what was there before.
  rm -f "$objects/stamp"
  shim_unit >"$objects/shim.cpp"
  while_saying "shim for DuckDB $version" "$CXX" "${CXX_FLAGS[@]}" "${maps[@]}" "${includes[@]}" -O2 -g1 \
    -c "$objects/shim.cpp" -o "$objects/shim.o"
  echo "$stamp" >"$objects/stamp"
fi
wait "$rust"

while_saying "link of the extension for DuckDB $version" "$CXX" -shared -o "$objects/penstock.so" "$objects/shim.o" \
  "${CARGO_TARGET_DIR:-target}/$profile/libpenstock_ffi.a" "${core[@]}" \
  -Wl,--gc-sections -Wl,--version-script=duckdb/src/exports.map -Wl,--exclude-libs,ALL -Wl,-z,defs -lpthread -ldl -lm
# The footer must stand last, so symbols go before it comes; penstock.so keeps them for perf and gdb.
strip --strip-unneeded -o "$objects/stripped.so" "$objects/penstock.so"
# Under new names first, so that a process which has the old ones loaded keeps them.
python3 scripts/duckdb-footer.py "$objects/stripped.so" "$out/.extension.new" "v$version"
mv -f "$out/.extension.new" "$out/penstock.duckdb_extension"
if [ "$link" = static ]; then
  rm -f "$out/libduckdb.so"
elif ! cmp -s "$library/libduckdb.so" "$out/libduckdb.so"; then
  cp "$library/libduckdb.so" "$out/.libduckdb.new"
  mv -f "$out/.libduckdb.new" "$out/libduckdb.so"
fi
