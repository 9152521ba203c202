#!/bin/bash
# usage: venv.sh [demo|test]
# Makes build/venv with the pinned packages of scripts/requirements/ and this checkout's own
# package (editable). A stamp by the hash of the requirements makes a second run free.
. "$(dirname "$0")/lib.sh"
set_name=${1:-demo}
requirements="$ROOT/scripts/requirements/$set_name.txt"
[ -f "$requirements" ] || die "no such set of packages: $set_name (demo or test)"
venv="$ROOT/build/venv"

python=${PYTHON:-python3}
need_python "$python"

stamp_of() {
  { "$python" --version; echo "$ROOT"; cat "$ROOT"/scripts/requirements/demo.txt "$ROOT/python/pyproject.toml"
    if [ "$1" = test ]; then cat "$ROOT/scripts/requirements/test.txt"; fi; } | sha256sum | cut -d' ' -f1
}
mkdir -p "$ROOT/build"
exec 9>"$ROOT/build/.venv.lock"
lock 9 "Python packages"
# The test set holds the demo set, so its stamp satisfies both.
for other in test "$set_name"; do
  if [ -x "$venv/bin/python" ] && [ "$(cat "$venv/.stamp-$other" 2>/dev/null)" = "$(stamp_of "$other")" ]; then exit 0; fi
done

say "Python packages ($set_name set) into build/venv"
# One that was cut off has Python and not pip.
"$venv/bin/python" -m pip --version >/dev/null 2>&1 || while_saying "Python environment" "$python" -m venv --clear "$venv"
while_saying "Python packages" "$venv/bin/python" -m pip install -q -r "$requirements"
while_saying "this checkout's Python package" "$venv/bin/python" -m pip install -q --no-deps -e "$ROOT/python"
stamp_of "$set_name" > "$venv/.stamp-$set_name"
