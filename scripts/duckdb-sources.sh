#!/bin/bash
# usage: duckdb-sources.sh tools | tree VERSION | headers VERSION | library VERSION | needs VERSION
# Fetches what a build of the extension needs from package registries, once per machine, and prints where it is:
#   tools     the directory of cmake and ninja (from PyPI)
#   tree      the root of DuckDB's sources (the source distribution on PyPI)
#   headers   their include directory
#   library   the directory of a ready libduckdb.so (from npm), where there is one
#   needs     nothing: it ends with an error where `library` will miss a program that it cannot install
# Everything is kept in $CACHE/duckdb, outside the checkout.
. "$(dirname "$0")/duckdb-lib.sh"

usage="usage: duckdb-sources.sh tools | tree VERSION | headers VERSION | library VERSION | needs VERSION"
what=${1:?$usage}
if [ "$what" != tools ]; then
  version=${2:?$usage}
  need_version "$version"
fi
home=$CACHE/duckdb
need_cache
mkdir -p "$home"

# locked NAME FUNCTION [ARGUMENT...]: one process at a time fetches NAME.
locked() {
  local name=$1
  shift
  (
    lock 9 "$name of DuckDB"
    "$@" >&2
  ) 9>"$home/.$name.lock"
}

# scratch: a directory beside the final place, so that a rename ends a fetch.
scratch() {
  rm -rf "$home/.fetch-$1"
  mkdir -p "$home/.fetch-$1"
  echo "$home/.fetch-$1"
}

requirements=$ROOT/scripts/requirements/core.txt
tools=$home/tools-$(sha256sum "$requirements" | cut -c1-12)
fetch_tools() {
  [ -f "$tools/.complete" ] && return 0
  need_python
  rm -rf "$tools"
  while_saying "environment of CMake and Ninja" python3 -m venv "$tools"
  while_saying "CMake and Ninja" "$tools/bin/python" -m pip install -q -r "$requirements"
  touch "$tools/.complete"
}

tree=$home/v${version:-}/sources
fetch_tree() {
  [ -d "$tree" ] && return 0
  local work
  work=$(scratch "$version")
  say "fetching the sources of DuckDB $version"
  # pip asks the build backend for metadata before it hands the archive out.
  PATH=$tools/bin:$PATH while_saying "sources of DuckDB $version" "$tools/bin/python" -m pip download -q --no-deps \
    --no-binary duckdb --no-build-isolation --dest "$work" "duckdb==$version"
  while_saying "unpacking DuckDB $version" tar -xzf "$work/duckdb-$version.tar.gz" -C "$work"
  [ -f "$work/duckdb-$version/external/duckdb/src/include/duckdb.hpp" ] ||
    die "the source distribution of duckdb $version has no external/duckdb"
  mkdir -p "$(dirname "$tree")"
  mv "$work/duckdb-$version/external/duckdb" "$tree"
  rm -rf "$work"
}

library=$home/v${version:-}/lib
fetch_library() {
  [ -f "$library/libduckdb.so" ] && return 0
  local package work
  package=$(ready_library "$version")
  [ "$package" != - ] || die "there is no ready libduckdb.so for DuckDB $version: build with LINK=static"
  [ "$(uname -sm)" = "Linux x86_64" ] || die "the ready libduckdb.so is for Linux on x86-64: build with LINK=static"
  need npm npm
  work=$(scratch "$version")
  (cd "$work" && while_saying "library of DuckDB $version" \
    npm pack --loglevel=error --fetch-retry-maxtimeout=10000 "@duckdb/node-bindings-linux-x64@$package" >/dev/null)
  tar -xzf "$work"/*.tgz -C "$work"
  mkdir "$work/lib"
  find "$work/package" -name 'libduckdb.so*' -exec mv {} "$work/lib/" \;
  [ -f "$work/lib/libduckdb.so" ] || die "version $package of the npm package holds no libduckdb.so"
  mkdir -p "$(dirname "$library")"
  rm -rf "$library"
  mv "$work/lib" "$library"
  rm -rf "$work"
}

case $what in
tools)
  locked tools fetch_tools
  echo "$tools/bin"
  ;;
tree | headers)
  locked tools fetch_tools
  locked "v$version" fetch_tree
  if [ "$what" = tree ]; then echo "$tree"; else echo "$tree/src/include"; fi
  ;;
library)
  locked "v$version" fetch_library
  echo "$library"
  ;;
needs) [ -f "$library/libduckdb.so" ] || can_install || need npm npm ;;
*) die "$usage" ;;
esac
