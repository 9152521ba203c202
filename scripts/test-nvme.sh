#!/bin/bash
# usage: test-nvme.sh
# NVMe by ioctl and by passthrough against an emulated controller: a virtual machine of QEMU (its
# software emulation; no virtualisation is needed) with a namespace of 512-byte and one of 4096-byte
# blocks and commands of 128 KiB at most. Times in it say nothing about devices.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
TIME_MAX_S=280
if [ "$(uname -m)" != x86_64 ] || ! have apt-get || [ "$(id -u)" != 0 ]; then
  say "test-nvme: NOT RUN: it takes x86-64, Debian's packages and root"
  exit 0
fi
need qemu-system-x86_64 qemu-system-x86
need busybox busybox-static
need cpio cpio
need depmod kmod

# The kernel is unpacked, not installed.
kernel_folder() {
  local package folder
  package=$(apt-cache depends linux-image-amd64 | awk '/Depends:/ { print $2; exit }')
  [ -n "$package" ] || die "there is no package linux-image-amd64 here"
  folder=$CACHE/nvme-vm/$package
  if [ ! -e "$folder/complete" ]; then
    say "unpacking $package"
    rm -rf "$folder"
    mkdir -p "$folder"
    (cd "$folder" && apt-get download -qq "$package" >&2 && dpkg -x ./*.deb . && rm ./*.deb)
    depmod -b "$folder" "${package#linux-image-}"
    touch "$folder/complete"
  fi
  echo "$folder"
}

# initrd FOLDER FILE: busybox, the modules that are needed in the order of their needs, and init.
initrd() {
  local folder=$1 file=$2 root modules name line path
  root=$work/initrd
  modules=$(echo "$folder"/lib/modules/*)
  mkdir -p "$root"/{bin,dev,proc,sys,root,modules}
  cp "$(command -v busybox)" "$root/bin/busybox"
  install -m 755 scripts/nvme-vm/init "$root/init"
  : > "$root/modules/order"
  for name in virtio_pci 9pnet_virtio 9p nvme; do
    # `a.ko: b.ko c.ko`: a needs b and c, and the last of them first.
    line=$(grep -E "/$name\.ko:" "$modules/modules.dep") || continue
    for path in $(tr ' ' '\n' <<< "${line/:/}" | tac); do
      grep -qx "${path##*/}" "$root/modules/order" && continue
      cp "$modules/$path" "$root/modules/"
      echo "${path##*/}" >> "$root/modules/order"
    done
  done
  (cd "$root" && find . | cpio -o -H newc --quiet -R 0:0) > "$file"
}

machine() {
  local folder=$1 shared=$2
  truncate -s 1G "$work/lba512.img" "$work/lba4096.img"
  timeout -k 5 "$TIME_MAX_S" qemu-system-x86_64 \
    -accel tcg,thread=multi -cpu max -m 1G -smp 2 -nodefaults -no-user-config -no-reboot -display none \
    -kernel "$folder"/boot/vmlinuz-* -initrd "$work/initrd.cpio" \
    -append "console=ttyS0 panic=-1 quiet mitigations=off" -serial "file:$work/console" \
    -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \
    -device virtio-9p-pci,fsdev=root,mount_tag=hostroot \
    -fsdev local,id=shared,path="$shared",security_model=none \
    -device virtio-9p-pci,fsdev=shared,mount_tag=shared \
    -drive file="$work/lba512.img",if=none,id=a,format=raw,cache=unsafe \
    -device nvme,serial=lba512,drive=a,mdts=5 \
    -drive file="$work/lba4096.img",if=none,id=b,format=raw,cache=unsafe \
    -device nvme,serial=lba4096,id=n,mdts=5 \
    -device nvme-ns,drive=b,bus=n,logical_block_size=4096,physical_block_size=4096 \
    < /dev/null >&2
}

need_rust
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
shared=$work/shared
mkdir "$shared"
say "building the exam"
cargo build --quiet --locked -p penstock-cli
exam=$(cargo test --locked -p penstock-device --features nvme --test nvme --no-run --message-format=json 2> "$work/log" \
  | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p') || { cat "$work/log" >&2; die "the exam does not build"; }
cp "$exam" "$shared/exam"
cp "${CARGO_TARGET_DIR:-target}/debug/penstock" "$shared/penstock"
cp scripts/nvme-vm/guest.sh "$shared/guest.sh"
# No multiple of any block, and longer than several commands.
head -c 9000001 /dev/urandom > "$shared/file"
folder=$(kernel_folder)
initrd "$folder" "$work/initrd.cpio"
say "starting the virtual machine"
machine "$folder" "$shared" || die "the virtual machine did not end by itself within $TIME_MAX_S s"
[ -e "$shared/output" ] && cat "$shared/output"
[ -e "$shared/status" ] || { tail -30 "$work/console" >&2; die "the virtual machine gave no status"; }
[ "$(cat "$shared/status")" = 0 ] || die "the exam on NVMe failed"
say "test-nvme: passed"
