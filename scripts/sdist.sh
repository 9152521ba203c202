#!/bin/bash
# usage: sdist.sh
# Makes build/dist/penstock-VERSION.tar.gz, the source distribution: python/build_backend.py says what is in it.
. "$(dirname "$0")/lib.sh"
mkdir -p "$ROOT/build/dist"
rm -f "$ROOT"/build/dist/penstock-*.tar.gz
tools=$(wheel_tools "$ROOT/build/venv/bin/python")
cd "$ROOT/python"
PYTHONPATH=$tools "$ROOT/build/venv/bin/python" -c 'import build_backend; build_backend.build_sdist("../build/dist")' >/dev/null
ls -l "$ROOT"/build/dist/penstock-*.tar.gz
