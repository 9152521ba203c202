# Shared by the peers' scripts. Each peer script answers:
#   install        puts the peer into the cache (nothing to do the second time) and prints its command
#   start DIR      starts it on 127.0.0.1 with an ephemeral port; DIR gets NAME.pid, NAME.port, NAME.log
#   stop DIR       ends it
# The script sets NAME and VERSION and defines install_peer, peer_command and serve DIR PORT (which
# execs the server) before it calls peer_main "$@".
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# The account that every emulator of Azure knows: published by Microsoft, no secret.
AZURE_ACCOUNT=devstoreaccount1
AZURE_KEY="Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# go_install PACKAGE@VERSION BINARY: builds a Go tool into the cache.
go_install() {
  need go golang-go
  local bin="$CACHE/$NAME-$VERSION"
  [ -x "$bin/$2" ] && return 0
  say "building $NAME $VERSION (once; kept in $bin)"
  mkdir -p "$bin.part"
  env GOBIN="$bin.part" GOFLAGS=-buildvcs=false nice go install "$1" >&2
  mv -T "$bin.part" "$bin"
}

# pip_install REQUIREMENT...: makes a Python environment of its own in the cache. It is not moved,
# since its programs hold its path; what tells that it is whole is the stamp.
pip_install() {
  local dir="$CACHE/$NAME-$VERSION"
  [ -f "$dir/.whole" ] && return 0
  say "installing $NAME $VERSION (once; kept in $dir)"
  rm -rf "$dir"
  need_python
  python3 -m venv "$dir" >&2
  "$dir/bin/python" -m pip install -q "$@" >&2
  touch "$dir/.whole"
}

install_locked() {
  need_cache
  exec 8>"$CACHE/.$NAME-$VERSION.lock"
  lock 8 "$NAME"
  install_peer
  exec 8>&-
}

start_peer() {
  local dir=$1 port pid
  mkdir -p "$dir"
  install_locked
  port=$(free_port)
  (serve "$dir" "$port" >"$dir/$NAME.log" 2>&1 </dev/null) &
  pid=$!
  echo "$pid" > "$dir/$NAME.pid"
  for _ in $(seq 300); do
    listening "$port" && { echo "$port" > "$dir/$NAME.port"; echo "$port"; return 0; }
    kill -0 "$pid" 2>/dev/null || die "$NAME ended at its start: $(tail -n 3 "$dir/$NAME.log")"
    sleep 0.1
  done
  kill "$pid"
  die "$NAME did not listen on port $port within 30 s"
}

stop_peer() {
  local dir=$1 pid
  [ -f "$dir/$NAME.pid" ] || return 0
  pid=$(cat "$dir/$NAME.pid")
  kill "$pid" 2>/dev/null || true
  for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
  kill -9 "$pid" 2>/dev/null || true
  rm -f "$dir/$NAME.pid" "$dir/$NAME.port"
}

peer_main() {
  case "${1:-}" in
    install) install_locked; peer_command ;;
    start) start_peer "${2:?usage: $0 start DIR}" ;;
    stop) stop_peer "${2:?usage: $0 stop DIR}" ;;
    *) die "usage: $0 install | start DIR | stop DIR" ;;
  esac
}
