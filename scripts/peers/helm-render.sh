#!/bin/bash
# A renderer of Helm charts for tests (Go, in helm-render/). No server: only `install`.
NAME=helm-render VERSION=1
. "$(dirname "$0")/lib.sh"

install_peer() {
  need go golang-go
  local source="$ROOT/scripts/peers/helm-render" bin="$CACHE/$NAME-$VERSION" stamp
  stamp=$(cat "$source"/* | sha256sum | cut -d' ' -f1)
  [ "$(cat "$bin/stamp" 2>/dev/null)" = "$stamp" ] && return 0
  say "building $NAME (once; kept in $bin)"
  mkdir -p "$bin"
  (cd "$source" && env GOFLAGS=-buildvcs=false nice go build -o "$bin/helm-render" .) >&2
  echo "$stamp" > "$bin/stamp"
}
peer_command() { echo "$CACHE/$NAME-$VERSION/helm-render"; }
serve() { die "$NAME is no server"; }
peer_main "$@"
