#!/bin/bash
# moto, an emulator of AWS in Python (PyPI). It takes any credentials; objects are kept in memory.
NAME=moto VERSION=5.2.5
. "$(dirname "$0")/lib.sh"

install_peer() { pip_install -r "$ROOT/scripts/requirements/moto.txt"; }
peer_command() { echo "$CACHE/moto-$VERSION/bin/moto_server"; }
serve() { exec "$(peer_command)" -H 127.0.0.1 -p "$2"; }
peer_main "$@"
