#!/bin/bash
# versitygw, an independent S3 server over a directory (Go). Credentials test / test.
NAME=versitygw VERSION=v1.8.0
. "$(dirname "$0")/lib.sh"

install_peer() { go_install "github.com/versity/versitygw/cmd/versitygw@$VERSION" versitygw; }
peer_command() { echo "$CACHE/versitygw-$VERSION/versitygw"; }
serve() {
  mkdir -p "$1/versitygw-data"
  ROOT_ACCESS_KEY=test ROOT_SECRET_KEY=test exec "$(peer_command)" --port "127.0.0.1:$2" --quiet \
    posix "$1/versitygw-data"
}
peer_main "$@"
