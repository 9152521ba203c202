#!/bin/bash
# usage: duckdb-core.sh VERSION
# Builds the core of DuckDB as a static library, once per machine, version and compiler, and prints its path. Its
# sources come with the headers (duckdb-sources.sh). Without Parquet, JSON and what else extensions bring: the shim
# asks the core only. Takes a quarter to half an hour on two cores; one that is cut off goes on where it was.
. "$(dirname "$0")/duckdb-lib.sh"
version=${1:?usage: duckdb-core.sh VERSION}
need "$CXX" g++
tree=$(cd "$("$ROOT/scripts/duckdb-sources.sh" headers "$version")/../../.." && pwd)
flags=(-std=c++17 -O2 -w -fPIC -ffunction-sections -fdata-sections -DNDEBUG)
key=$({ "$CXX" --version; echo "${flags[@]}"; } | sha256sum | cut -c1-12)
core=$CACHE/duckdb/v$version/core-$key
mkdir -p "$core"
exec 9>"$core/.lock"
flock 9
if [ ! -f "$core/libduckdb_core.a" ]; then
  # One line each: files of the core, then flags for its directories.
  python3 - "$tree/duckdb/manifest.json" "$core" <<'PYTHON'
import json, sys
from pathlib import Path

manifest, core = json.loads(Path(sys.argv[1]).read_text())["base"], Path(sys.argv[2])
# Registers extensions that are linked in, of which there are none.
files = [file for file in manifest["cpp_files"] if "static_extension_autoregister" not in file]
(core / "files").write_text("".join(f"{file}\n" for file in sorted(files)))
directories = ["", *sorted(manifest["include_dirs"])]
(core / "flags").write_text("".join(f"-Iduckdb/{name}\n" for name in directories))
PYTHON
  mapfile -t includes <"$core/flags"
  say "building the core of DuckDB $version, $(wc -l <"$core/files") files, into $core"
  export CXX core
  # shellcheck disable=SC2016  # The inner shell expands these.
  (cd "$tree" && xargs -P "$(nproc)" -I{} bash -c '
    file=$1 object=$core/${1//\//-}.o
    shift
    [ -f "$object" ] || { "$CXX" "$@" -c "$file" -o "$object.new" && mv "$object.new" "$object"; }
  ' compile {} "${flags[@]}" "${includes[@]}" <"$core/files") || die "the core of DuckDB $version does not compile, see above"
  rm -f "$core/new.a"
  (cd "$core" && ar qcs new.a ./*.o && mv new.a libduckdb_core.a && rm -f ./*.o)
fi
echo "$core/libduckdb_core.a"
