#!/bin/bash
# Azurite, Microsoft's emulator of Azure Blob Storage (npm), with the Node that it needs: later than
# Debian's, from npm too. Blobs are kept in memory.
NAME=azurite VERSION=3.37.0
NODE=22.23.3
. "$(dirname "$0")/lib.sh"

install_peer() {
  need npm npm
  local dir="$CACHE/azurite-$VERSION"
  [ -x "$dir/azurite-blob" ] && return 0
  say "installing azurite $VERSION (once; kept in $dir)"
  rm -rf "$dir.part"
  mkdir -p "$dir.part"
  npm install --prefix "$dir.part" --no-audit --no-fund --loglevel=error "azurite@$VERSION" "node@$NODE" >&2
  # What it is started by has the Node of the machine in its first line.
  printf '#!/bin/sh\nexec "%s/node_modules/node/bin/node" "%s/node_modules/.bin/azurite-blob" "$@"\n' \
    "$dir" "$dir" > "$dir.part/azurite-blob"
  chmod +x "$dir.part/azurite-blob"
  mv -T "$dir.part" "$dir"
}
peer_command() { echo "$CACHE/azurite-$VERSION/azurite-blob"; }
serve() {
  # The API version check refuses clients newer than the emulator.
  exec "$(peer_command)" --blobHost 127.0.0.1 --blobPort "$2" --inMemoryPersistence --silent \
    --skipApiVersionCheck --disableTelemetry
}
peer_main "$@"
