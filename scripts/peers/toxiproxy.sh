#!/bin/bash
# toxiproxy, a TCP proxy that adds latency (Go); the port is its control API's.
NAME=toxiproxy VERSION=v2.12.0
. "$(dirname "$0")/lib.sh"

install_peer() { go_install "github.com/Shopify/toxiproxy/v2/cmd/server@$VERSION" server; }
peer_command() { echo "$CACHE/toxiproxy-$VERSION/server"; }
serve() { exec "$(peer_command)" -host 127.0.0.1 -port "$2"; }
peer_main "$@"
