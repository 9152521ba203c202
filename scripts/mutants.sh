#!/bin/bash
# usage: mutants.sh [--every N] [--from K] [--crate NAME]
# The mutation check: plants faults by cargo-mutants, one at a time, and tells which no test notices.
# See scripts/mutants.py. Run by hand: half a minute for each fault on two cores.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
VERSION=27.1.0
need_rust
home="$CACHE/cargo-mutants-$VERSION"
if [ ! -x "$home/bin/cargo-mutants" ]; then
  say "building cargo-mutants $VERSION (once; kept in $home)"
  cargo install --quiet --locked --root "$home" "cargo-mutants@$VERSION" >&2
fi
exec python3 scripts/mutants.py "$home/bin/cargo-mutants" "$@"
