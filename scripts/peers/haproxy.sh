#!/bin/bash
# HAProxy, the load balancer before several replicas (Debian). HAPROXY_SERVERS names their addresses
# (HOST:PORT, separated by blanks).
NAME=haproxy VERSION=debian
. "$(dirname "$0")/lib.sh"

install_peer() { need haproxy haproxy; }
peer_command() { command -v haproxy; }
serve() {
  : "${HAPROXY_SERVERS:?the addresses of the replicas}"
  # As deploy/compose/haproxy.cfg, but for where the replicas are and how fast a loss is noticed.
  {
    printf 'defaults\n  mode http\n  timeout connect 2s\n  timeout client 60s\n  timeout server 60s\n'
    printf '  option httpchk GET /readyz\n  option redispatch 1\n  retries 3\n  retry-on conn-failure\n'
    printf 'frontend s3\n  bind 127.0.0.1:%s\n  default_backend replicas\n' "$2"
    printf 'backend replicas\n  balance roundrobin\n'
    printf '  default-server check inter 100ms fall 1 rise 1\n'
    local number=0 address
    for address in $HAPROXY_SERVERS; do
      number=$((number + 1))
      printf '  server replica%d %s\n' "$number" "$address"
    done
  } > "$1/haproxy.cfg"
  exec "$(peer_command)" -db -f "$1/haproxy.cfg"
}
peer_main "$@"
