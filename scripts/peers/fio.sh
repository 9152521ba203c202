#!/bin/bash
# fio, which measures devices (Debian).
NAME=fio VERSION=debian
. "$(dirname "$0")/lib.sh"

install_peer() { need fio fio; }
peer_command() { command -v fio; }
peer_main "$@"
