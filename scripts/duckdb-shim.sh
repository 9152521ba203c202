#!/usr/bin/env bash
# Compiles the C++ shim.
#
#   scripts/duckdb-shim.sh check [VERSION...]   only checks that it compiles (default: every version)
#   scripts/duckdb-shim.sh objects VERSION DIR  writes its objects to DIR
set -euo pipefail
cd "$(dirname "$0")/.."

cxx=${CXX:-g++}
flags=(-std=c++17 -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -DNDEBUG -DDUCKDB_BUILD_LIBRARY
	-Wall -Wextra -Werror -Wno-unused-parameter)

includes() {
	local headers third_party
	headers=$(scripts/duckdb-sources.sh headers "$1")
	third_party=$headers/../../third_party
	echo "-isystem $headers -isystem $third_party/fmt/include -isystem $third_party/re2 -isystem $third_party/utf8proc/include"
	echo "-Iduckdb/src/include -Iduckdb/ffi/include"
}

case ${1:-} in
check)
	shift
	versions=("$@")
	[ ${#versions[@]} -gt 0 ] || versions=(1.5.5 2.0.0)
	for version in "${versions[@]}"; do
		for source in duckdb/src/*.cpp; do echo "#include \"$PWD/$source\""; done |
			# shellcheck disable=SC2046
			"$cxx" "${flags[@]}" $(includes "$version") -fsyntax-only -x c++ -
		echo "shim: compiles against DuckDB $version"
	done
	;;
objects)
	version=$2 out=$3
	mkdir -p "$out"
	# One translation unit: DuckDB's headers are most of the work, and are read once.
	for source in duckdb/src/*.cpp; do echo "#include \"$PWD/$source\""; done >"$out/shim.cpp"
	# shellcheck disable=SC2046
	"$cxx" "${flags[@]}" -O2 -g1 $(includes "$version") -c "$out/shim.cpp" -o "$out/shim.o"
	;;
*)
	sed -n '2,6p' "$0" >&2
	exit 2
	;;
esac
