#!/bin/bash
# SeaweedFS 4.53, a distributed store with an S3 gateway (Go). Credentials test / test. Its releases
# are no versions for Go, so the version is that of a commit. Nine minutes of a processor to build.
NAME=seaweedfs VERSION=v0.0.0-20261109003541-7506e5f91cd6
. "$(dirname "$0")/lib.sh"

# Its go.mod replaces modules, which `go install PACKAGE@VERSION` refuses: it is built from a copy of
# the source that the module proxy has. CGO off: nothing here needs its bindings of C.
install_peer() {
  need go golang-go
  local bin="$CACHE/seaweedfs-$VERSION" source
  [ -x "$bin/weed" ] && return 0
  say "building SeaweedFS (once; kept in $bin)"
  rm -rf "$bin.part"
  mkdir -p "$bin.part"
  source=$(cd "$bin.part" && go mod download -json "github.com/seaweedfs/seaweedfs@$VERSION" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["Dir"])')
  cp -r "$source" "$bin.part/source"
  chmod -R u+w "$bin.part/source"
  (cd "$bin.part/source" && CGO_ENABLED=0 GOFLAGS=-buildvcs=false nice go build -o ../weed ./weed) >&2
  rm -rf "$bin.part/source"
  mv -T "$bin.part" "$bin"
}
peer_command() { echo "$CACHE/seaweedfs-$VERSION/weed"; }

serve() {
  local data="$1/seaweedfs-data" flag flags=()
  mkdir -p "$data"
  cat > "$1/seaweedfs.json" <<'JSON'
{"identities": [{"name": "test", "credentials": [{"accessKey": "test", "secretKey": "test"}],
  "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}
JSON
  # Without minFreeSpace no write ends once 99 % of the disk is full.
  # Every port that it would take by a fixed number, and none for tables (Iceberg, Lance).
  for flag in master.port master.port.grpc volume.port volume.port.grpc filer.port filer.port.grpc \
    s3.port.grpc; do
    flags+=("-$flag=$(free_port)")
  done
  exec "$(peer_command)" server -dir="$data" -ip=127.0.0.1 -ip.bind=127.0.0.1 -s3 -s3.port="$2" -s3.port.iceberg=0 \
    -s3.port.lance=0 -s3.config="$1/seaweedfs.json" -volume.max=8 -master.volumeSizeLimitMB=256 -volume.minFreeSpace=16MiB "${flags[@]}"
}
peer_main "$@"
