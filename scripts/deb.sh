#!/bin/bash
# usage: deb.sh
# Builds build/dist/penstock_VERSION_ARCHITECTURE.deb from build/penstock: the binary, manual pages, completions of shells
# and a unit of systemd. The same commit gives the same bytes: its time is that of every file. Depends are those that
# dpkg-shlibdeps finds.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
[ -x build/penstock ] || die "there is no build/penstock: run make build first"
need_rust
need_python
need dpkg-deb dpkg
need dpkg-shlibdeps dpkg-dev
umask 022
version=$(workspace_version)
architecture=$(dpkg --print-architecture)

# As the Rust stage of the tests built it: with other features all that it depends on would be built anew.
while_saying "what writes the manual" cargo build --workspace --locked --quiet --features penstock-store/azurite \
  --example manual
# Not before: with it in the environment ring, and all above it, would be built anew.
SOURCE_DATE_EPOCH=$(source_date)
export SOURCE_DATE_EPOCH
work=$ROOT/build/deb
root=$work/root
manual=$work/manual
rm -rf "$work"
mkdir -p "$manual" "$root/DEBIAN" "$root/usr/bin" "$work/debian" build/dist
"${CARGO_TARGET_DIR:-target}/debug/examples/manual" "$manual"

strip --strip-unneeded -o "$root/usr/bin/penstock" build/penstock
for page in "$manual"/*.1; do
  install -D -m 644 "$page" "$root/usr/share/man/man1/$(basename "$page")"
done
gzip -9n "$root"/usr/share/man/man1/*.1
install -D -m 644 "$manual/penstock.bash" "$root/usr/share/bash-completion/completions/penstock"
install -D -m 644 "$manual/penstock.fish" "$root/usr/share/fish/vendor_completions.d/penstock.fish"
install -D -m 644 "$manual/_penstock" "$root/usr/share/zsh/vendor-completions/_penstock"
install -D -m 644 deploy/debian/penstock.service "$root/lib/systemd/system/penstock.service"
install -D -m 644 deploy/debian/penstock.toml "$root/etc/penstock/penstock.toml"
install -D -m 644 deploy/debian/copyright "$root/usr/share/doc/penstock/copyright"
python3 scripts/notices.py | gzip -9n >"$root/usr/share/doc/penstock/LICENSE-THIRD-PARTY.gz"
install -m 755 deploy/debian/{postinst,prerm,postrm} "$root/DEBIAN/"
echo /etc/penstock/penstock.toml >"$root/DEBIAN/conffiles"

# It reads the name of a package from such a file, and nothing else.
printf 'Source: penstock\n\nPackage: penstock\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O -e root/usr/bin/penstock | sed -n 's/^shlibs:Depends=//p')
[ -n "$depends" ] || die "dpkg-shlibdeps finds no library that build/penstock needs"
cat >"$root/DEBIAN/control" <<CONTROL
Package: penstock
Version: $version
Architecture: $architecture
Maintainer: the authors of Penstock <penstock@localhost>
Installed-Size: $(du -k -s --apparent-size --exclude=DEBIAN "$root" | cut -f1)
Depends: $depends
Recommends: ca-certificates
Section: net
Priority: optional
Description: S3 gateway, and tools for object storage
 Serves Azure Blob, S3, Google Cloud Storage or a directory as S3, and reads and
 writes objects of these stores from the command line.
 .
 The server is the unit penstock.service. It is not started before it has a
 secret: see /etc/penstock/penstock.toml.
CONTROL
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$work/md5sums"
install -m 644 "$work/md5sums" "$root/DEBIAN/md5sums"
find "$root" -print0 | xargs -0 touch --no-dereference --date="@$SOURCE_DATE_EPOCH"
package=build/dist/penstock_${version}_$architecture.deb
# Packed by xz it would be a fifth smaller, for ten times as long.
dpkg-deb --root-owner-group -Zgzip --build "$root" "$package" >/dev/null
rm -rf "$work"
ls -l "$package"
