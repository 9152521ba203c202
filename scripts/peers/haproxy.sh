#!/bin/bash
# HAProxy (Debian), the load balancer before several replicas, with the very file that is shipped:
# deploy/compose/haproxy.cfg, which tells of PENSTOCK_REPLICAS, PENSTOCK_DNS and PENSTOCK_PAGE_BIND.
NAME=haproxy VERSION=debian
. "$(dirname "$0")/lib.sh"

install_peer() { need haproxy haproxy; }
peer_command() { command -v haproxy; }
serve() {
  : "${PENSTOCK_REPLICAS:?NAME:PORT of the replicas}" "${PENSTOCK_DNS:?the address of a name server}"
  PENSTOCK_BIND="127.0.0.1:$2" exec "$(peer_command)" -db -f "$ROOT/deploy/compose/haproxy.cfg"
}
peer_main "$@"
