#!/usr/bin/env bash
# Fetches what a build of the extension needs from the package registries, once per machine:
# DuckDB's headers (from the crate libduckdb-sys) and libduckdb.so (from npm).
#
#   scripts/duckdb-sources.sh headers 1.5.5    prints the include directory
#   scripts/duckdb-sources.sh library 1.5.5    prints the directory of libduckdb.so
#
# Everything lands in ${PENSTOCK_CACHE:-~/.cache/penstock}, outside the checkout.
. "$(dirname "$0")/lib.sh"

what=${1:?usage: duckdb-sources.sh headers|library VERSION}
version=${2:?usage: duckdb-sources.sh headers|library VERSION}
cache=$CACHE/duckdb/v$version
platform=$(uname -s)-$(uname -m)

case $version in
1.5.5) crate_version==1.10505.0 npm_version=1.5.5-r.1 ;;
1.5.6) crate_version==1.10506.1 npm_version=1.5.6-r.1 ;;
2.0.0) crate_version==1.20000.1 npm_version= ;;
*) echo "duckdb-sources: DuckDB $version is not known here; known: 1.5.5, 1.5.6, 2.0.0" >&2; exit 2 ;;
esac

mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9
work=$(mktemp -d "$cache/.fetch-XXXXXX")
trap 'rm -rf "$work"' EXIT

fetch_headers() {
	need_rust
	mkdir -p "$work/src"
	: >"$work/src/lib.rs"
	cat >"$work/Cargo.toml" <<-TOML
		[package]
		name = "fetch"
		version = "0.0.0"
		edition = "2021"
		[dependencies]
		libduckdb-sys = { version = "$crate_version", default-features = false }
		[workspace]
	TOML
	(cd "$work" && cargo fetch --quiet) >&2
	local crate
	crate=$(cd "$work" && cargo metadata --format-version 1 --offline 2>/dev/null |
		python3 -c 'import json,sys,os; print(next(os.path.dirname(p["manifest_path"]) for p in json.load(sys.stdin)["packages"] if p["name"]=="libduckdb-sys"))')
	mkdir "$work/tree"
	tar -xzf "$crate/duckdb.tar.gz" -C "$work/tree"
	rm -rf "$cache/tree"
	mv "$work/tree" "$cache/tree"
}

fetch_library() {
	need npm npm >&2
	[ "$platform" = Linux-x86_64 ] && [ -n "$npm_version" ] || {
		echo "duckdb-sources: no ready libduckdb for DuckDB $version on $platform" >&2
		exit 2
	}
	(cd "$work" && npm pack --silent "@duckdb/node-bindings-linux-x64@$npm_version") >&2
	tar -xzf "$work"/*.tgz -C "$work"
	mkdir "$work/lib"
	find "$work/package" -name 'libduckdb.so*' -exec mv {} "$work/lib/" \;
	[ -f "$work/lib/libduckdb.so" ] || { echo "duckdb-sources: the npm package holds no libduckdb.so" >&2; exit 1; }
	rm -rf "$cache/lib"
	mv "$work/lib" "$cache/lib"
}

case $what in
headers)
	[ -d "$cache/tree" ] || fetch_headers
	dirname "$(dirname "$(find "$cache/tree" -path '*/src/include/duckdb.hpp' | head -1)")/include"
	;;
library)
	[ -f "$cache/lib/libduckdb.so" ] || fetch_library
	echo "$cache/lib"
	;;
*) echo "duckdb-sources: unknown request '$what'" >&2; exit 2 ;;
esac
