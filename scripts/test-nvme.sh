#!/bin/bash
# usage: [PENSTOCK_TEST_BINARY=build/penstock] test-nvme.sh
# NVMe by ioctl and by passthrough against emulated controllers: a virtual machine of QEMU (its
# software emulation; no virtualisation is needed). First the exam, on a namespace of 512-byte blocks
# (commands of 128 KiB at most) and one of 4096-byte blocks (64 KiB), devices that fail and devices
# that are pulled out; then the machine is stopped hard in the middle of commits, and what it had said
# to be durable must be there. Times in it say nothing about devices.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
# For each of the two parts; alone on a machine both take two or three minutes together.
TIME_MAX_S=500
if [ "$(uname -m)" != x86_64 ] || ! have apt-get || [ "$(id -u)" != 0 ]; then
  say "test-nvme: NOT RUN: it takes x86-64, Debian's packages and root"
  exit 0
fi
need qemu-system-x86_64 qemu-system-x86
need busybox busybox-static
need cpio cpio
need depmod kmod
need python3 python3-minimal
need strip binutils

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

# controller SERIAL MDTS BLOCK [DRIVE]: commands of 4096 << MDTS bytes at most, an empty image.
controller() {
  local image=$work/$1.img
  rm -f "$image"
  truncate -s 64M "$image"
  qemu+=(-drive "${4:-file=$image,format=raw,cache=unsafe},if=none,id=$1"
    -device "nvme,serial=$1,id=c-$1,mdts=$2"
    -device "nvme-ns,id=n-$1,drive=$1,bus=c-$1,logical_block_size=$3,physical_block_size=$3")
}

# machine WHAT SCRIPT DEVICES: runs SCRIPT in the guest; machine.py says what WHAT is.
machine() {
  timeout -k 5 "$TIME_MAX_S" python3 scripts/nvme-vm/machine.py "$1" "$shared" "$shared/killed" -- \
    qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 1G -smp 2 -nodefaults -no-user-config \
    -display none -trace enable=pci_nvme_flush_ns \
    -kernel "$folder"/boot/vmlinuz-* -initrd "$work/initrd.cpio" \
    -append "console=ttyS0 panic=-1 quiet mitigations=off script=$2 devices=$3" \
    -serial "file:$work/console" \
    -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \
    -device virtio-9p-pci,fsdev=root,mount_tag=hostroot \
    -fsdev "local,id=shared,path=$shared,security_model=none" \
    -device virtio-9p-pci,fsdev=shared,mount_tag=shared "${qemu[@]}" && return 0
  tail -n 30 "$work/console" "$work/qemu.log" >&2
  die "the virtual machine failed, or did not end within $TIME_MAX_S s"
}

# Reads of block 2048, writes of block 4096 and flushes fail.
faults() {
  local rule='[inject-error]\nonce = "off"\nerrno = "5"\nevent = "%s"\n'
  printf "${rule}sector = \"%s\"\n" read_aio 2048 write_aio 4096
  printf "$rule" flush_to_disk
}

# test_binary NAME: builds a test of the device crate, prints where it is.
test_binary() {
  cargo test --locked -p penstock-device --features nvme --test "$1" --no-run \
    --message-format=json 2> "$work/log" | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' ||
    { cat "$work/log" >&2; die "the test $1 does not build"; }
}

need_rust
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
shared=$work/shared
mkdir "$shared"
say "building the exam"
binary=${PENSTOCK_TEST_BINARY:-}
if [ -z "$binary" ]; then
  cargo build --quiet --locked -p penstock-cli
  binary=${CARGO_TARGET_DIR:-target}/debug/penstock
fi
# The guest reads programs over and over: without their names for debuggers they are a tenth as long.
strip -o "$shared/exam" "$(test_binary nvme)"
strip -o "$shared/killed" "$(test_binary killed)"
strip -o "$shared/penstock" "$binary"
cp scripts/nvme-vm/guest.sh scripts/nvme-vm/stops.sh "$shared/"
# No multiple of any block, and longer than several commands.
head -c 3000001 /dev/urandom > "$shared/file"
faults > "$work/faults"
folder=$(kernel_folder)
initrd "$folder" "$work/initrd.cpio"

say "the exam in the virtual machine"
begin=$SECONDS
qemu=()
controller lba512 5 512
controller lba4096 4 4096
bad=driver=raw,file.driver=blkdebug,file.config=$work/faults
controller bad 2 512 "$bad,file.image.driver=file,file.image.filename=$work/bad.img"
controller pulled-a 5 512
controller pulled-b 5 4096
machine exam guest.sh 5
[ ! -e "$shared/output" ] || cat "$shared/output"
[ -e "$shared/status" ] || { tail -n 30 "$work/console" >&2; die "the virtual machine gave no status"; }
[ "$(cat "$shared/status")" = 0 ] || die "the exam on NVMe failed"
grep -q pci_nvme_flush_ns "$work"/trace.* || die "no flush reached the controllers"
say "the exam: $((SECONDS - begin)) s; stopping the virtual machine in the middle of commits"
begin=$SECONDS
qemu=()
controller lba512 5 512
controller lba4096 4 4096
rm -f "$work"/trace.*
for serial in lba512 lba4096; do "$shared/killed" format "$work/$serial.img" file; done
machine stops stops.sh 2
say "test-nvme: passed; the stops took $((SECONDS - begin)) s"
