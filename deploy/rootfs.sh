#!/bin/bash
# usage: rootfs.sh BINARY DIR
# Puts a binary into DIR as the root of an image: with the libraries it is linked to, the
# certificate authorities and a /tmp, and nothing else.
set -euo pipefail
binary=$1 root=$2
authorities=/etc/ssl/certs/ca-certificates.crt
[ -f "$authorities" ] || { echo "error: $authorities is missing: install ca-certificates" >&2; exit 1; }
install -D -m 755 "$binary" "$root/usr/bin/penstock"
# A quarter is left without the line tables, and perf still names functions.
strip --strip-debug "$root/usr/bin/penstock"
# Lines are `name => path (address)`, or `path (address)` for the loader. The kernel's own library
# has no path.
ldd "$binary" | grep -o '/[^ )]*' | sort -u | while read -r library; do
  install -D -m 755 "$library" "$root$library"
done
install -D -m 644 "$authorities" "$root$authorities"
mkdir -p -m 755 "$root/etc/penstock"
mkdir -p -m 1777 "$root/tmp"
printf 'nobody:x:65532:65532:nobody:/:/usr/sbin/nologin\n' > "$root/etc/passwd"
printf 'nobody:x:65532:\n' > "$root/etc/group"
