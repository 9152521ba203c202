#!/bin/bash
# Azurite, Microsoft's emulator of Azure Blob Storage (npm). Blobs are kept in memory.
NAME=azurite VERSION=3.35.0
. "$(dirname "$0")/lib.sh"

install_peer() {
  need node nodejs
  need npm npm
  local dir="$CACHE/azurite-$VERSION"
  [ -x "$dir/node_modules/.bin/azurite-blob" ] && return 0
  say "installing azurite $VERSION (once; kept in $dir)"
  rm -rf "$dir.part"
  mkdir -p "$dir.part"
  npm install --prefix "$dir.part" --no-audit --no-fund --silent "azurite@$VERSION" >&2
  mv -T "$dir.part" "$dir"
}
peer_command() { echo "$CACHE/azurite-$VERSION/node_modules/.bin/azurite-blob"; }
serve() {
  # The API version check refuses clients newer than the emulator.
  exec "$(peer_command)" --blobHost 127.0.0.1 --blobPort "$2" --inMemoryPersistence --silent \
    --skipApiVersionCheck --disableTelemetry
}
peer_main "$@"
