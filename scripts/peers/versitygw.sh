#!/bin/bash
# versitygw, an independent S3 server (Go). Credentials test / test. It stands before a directory
# below DIR, or before what PENSTOCK_BACK_END names: azure=URL or s3=URL, as in s3proxy.sh.
NAME=versitygw VERSION=v1.8.0
. "$(dirname "$0")/lib.sh"

install_peer() { go_install "github.com/versity/versitygw/cmd/versitygw@$VERSION" versitygw; }
peer_command() { echo "$CACHE/versitygw-$VERSION/versitygw"; }
serve() {
  local command=("$(peer_command)" --port "127.0.0.1:$2" --quiet)
  # Its S3 client dies of a CA bundle that the environment names.
  unset AWS_CA_BUNDLE
  export ROOT_ACCESS_KEY=test ROOT_SECRET_KEY=test
  case "${PENSTOCK_BACK_END:-dir}" in
    dir)
      mkdir -p "$1/versitygw-data"
      exec "${command[@]}" posix "$1/versitygw-data" ;;
    azure=*)
      exec "${command[@]}" azure --account "$AZURE_ACCOUNT" --access-key "$AZURE_KEY" \
        --url "${PENSTOCK_BACK_END#azure=}" ;;
    s3=*)
      exec "${command[@]}" s3 --use-path-style --access test --secret test \
        --endpoint "${PENSTOCK_BACK_END#s3=}" ;;
    *) die "PENSTOCK_BACK_END is ${PENSTOCK_BACK_END}; it must be dir, azure=URL or s3=URL" ;;
  esac
}
peer_main "$@"
