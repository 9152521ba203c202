#!/bin/bash
# usage: test-nvme.sh
# NVMe by ioctl and by passthrough against emulated controllers: virtual machines of QEMU (its
# software emulation; no virtualisation is needed), side by side. One takes the exam and attaches
# databases, on a namespace of 512-byte blocks (commands of 128 KiB at most) and one of 4096-byte
# blocks (64 KiB), reads by every io and discipline, has a cache on a namespace, devices that fail,
# hang and are pulled out. Two are stopped hard while DuckDB commits, and what they had said to be
# durable must be there. Times in them say nothing about devices. Where PENSTOCK_TEST_XNVME names a
# libxnvme, its NVMe backends take the exam, too. Needs build/penstock, the extension and the test set
# of build/venv.
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
# What hangs is ended after so long; an idle machine takes four minutes for all of it, a busy one twelve.
TIME_MAX_S=${PENSTOCK_TEST_NVME_MAX_S:-900}
# The binary knows all variables of its own, and refuses others that begin alike.
unset PENSTOCK_TEST_NVME_MAX_S
XNVME=${PENSTOCK_TEST_XNVME:-}
unset PENSTOCK_TEST_XNVME
# By which the caller knows that nothing was tested.
NOT_RUN=77
if [ "$(uname -m)" != x86_64 ] || ! have apt-get || [ "$(id -u)" != 0 ]; then
  say "test-nvme: NOT RUN: it takes x86-64, Debian's packages and root"
  exit "$NOT_RUN"
fi
need qemu-system-x86_64 qemu-system-x86
need busybox busybox-static
need cpio cpio
need depmod kmod
need python3 python3-minimal

# Seconds that are left.
left() {
  local left=$((TIME_MAX_S - SECONDS))
  [ "$left" -gt 0 ] || die "test-nvme: it did not end within $TIME_MAX_S s"
  echo "$left"
}

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

# initrd FILE: busybox, the modules that are needed in the order of their needs, and init.
initrd() {
  local file=$1 root modules name line path
  root=$work/initrd
  modules=$(echo "$kernel"/lib/modules/*)
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

# begin NAME: a folder for a machine, and in it the one that it shares.
begin() {
  folder=$work/$1
  qemu=()
  mkdir -p "$folder/shared"
  cp scripts/nvme-vm/*.sh "$work/paths" "$folder/shared/"
}

# controller SERIAL MDTS BLOCK [DRIVE]: commands of 4096 << MDTS bytes at most, an empty image.
controller() {
  local image=$folder/$1.img
  truncate -s 64M "$image"
  qemu+=(-drive "${4:-file=$image,format=raw,cache=unsafe},if=none,id=$1"
    -device "nvme,serial=$1,id=c-$1,mdts=$2"
    -device "nvme-ns,id=n-$1,drive=$1,bus=c-$1,logical_block_size=$3,physical_block_size=$3")
}

# machine WHAT SCRIPT DEVICES: runs SCRIPT in the guest; machine.py says what WHAT is.
machine() {
  local most
  most=$(left)
  timeout -k 5 "$most" python3 scripts/nvme-vm/machine.py "$1" "$folder/shared" -- \
    qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 1G -smp 2 -nodefaults -no-user-config \
    -display none -trace enable=pci_nvme_flush_ns \
    -kernel "$kernel"/boot/vmlinuz-* -initrd "$work/initrd.cpio" \
    -append "console=ttyS0 panic=-1 quiet mitigations=off script=$2 devices=$3" \
    -serial "file:$folder/console" \
    -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \
    -device virtio-9p-pci,fsdev=root,mount_tag=hostroot \
    -fsdev "local,id=shared,path=$folder/shared,security_model=none" \
    -device virtio-9p-pci,fsdev=shared,mount_tag=shared "${qemu[@]}" && return 0
  tail -n 30 "$folder/console" "$folder/qemu.log" >&2
  die "the virtual machine failed, or all of it did not end within $TIME_MAX_S s"
}

# Reads of block 2048, writes of block 4096 and flushes fail.
faults() {
  local rule='[inject-error]\nonce = "off"\nerrno = "5"\nevent = "%s"\n'
  printf "${rule}sector = \"%s\"\n" read_aio 2048 write_aio 4096
  printf "$rule" flush_to_disk
}

# built VERB WORD...: builds a program of the device crate, prints where it is. Among all packages,
# as test.sh does: by itself all that it depends on would be built anew, with other features.
built() {
  local most
  most=$(left)
  timeout "$most" cargo "$@" --workspace --locked --message-format=json 2> "$work/log" |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' || { cat "$work/log" >&2; die "the exam does not build"; }
}

exam() {
  local began=$SECONDS bad serial
  begin exam
  # No multiple of any block, and longer than several commands.
  # What is imported has to look like a database: DUCK at its byte 8.
  { head -c 8 /dev/zero && printf DUCK && head -c 2999989 /dev/urandom; } > "$folder/shared/file"
  cp "$1" "$folder/shared/exam"
  cp "$2" "$folder/shared/bench"
  if [ -n "${3:-}" ]; then
    cp "$3" "$folder/shared/exam-xnvme"
    cp "$XNVME" "$folder/shared/libxnvme.so"
  fi
  faults > "$folder/faults"
  controller lba512 5 512
  controller lba4096 4 4096
  bad=driver=raw,file.driver=blkdebug,file.config=$folder/faults
  controller cache 5 512
  controller bad 2 512 "$bad,file.image.driver=file,file.image.filename=$folder/bad.img"
  for letter in a b c d; do controller pulled-$letter 5 512; done
  controller hung 5 512
  machine exam guest.sh 9
  [ ! -e "$folder/shared/output" ] || cat "$folder/shared/output" >&2
  [ -e "$folder/shared/status" ] || { tail -n 30 "$folder/console" >&2; die "the virtual machine gave no status"; }
  [ "$(cat "$folder/shared/status")" = 0 ] || die "the exam on NVMe failed"
  grep -q pci_nvme_flush_ns "$folder"/trace.* || die "no flush reached the controllers"
  for serial in pulled-c pulled-d; do
    "$folder/shared/pulled.sh" "$folder/$serial.img" "$(cat "$folder/shared/$serial.said")" >&2 ||
      die "$serial, which was pulled out, does not hold what was committed"
  done
  say "the exam in the virtual machine: passed in $((SECONDS - began)) s"
}

# stops FIRST-LAST: by number, see machine.py.
stops() {
  local began=$SECONDS
  begin "stops-$1"
  controller lba512 5 512
  controller lba4096 4 4096
  "$folder/shared/commits.sh" prepare "$folder/lba512.img" "$folder/lba4096.img" direct
  machine "$1" stops.sh 2
  say "stops $1 of a virtual machine in the middle of commits: passed in $((SECONDS - began)) s"
}

need_rust
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/paths" << PATHS
DUCKDB=$(build/venv/bin/python -c 'import duckdb_cli, os; print(os.path.dirname(duckdb_cli.__file__))')/duckdb
EXTENSION=$ROOT/build/duckdb/v$(build/venv/bin/python -c 'import duckdb; print(duckdb.__version__)')/penstock.duckdb_extension
PENSTOCK=$ROOT/build/penstock
PATHS
. "$work/paths"
for file in "$DUCKDB" "$EXTENSION" "$PENSTOCK"; do
  [ -e "$file" ] || die "there is no $file: run make build venv-test"
done
kernel=$(kernel_folder)
initrd "$work/initrd.cpio"
say "stopping two virtual machines while DuckDB commits, and building the exam meanwhile"
stops 0-4 > "$work/stops.1" 2>&1 &
machines=($!)
stops 5-9 > "$work/stops.2" 2>&1 &
machines+=($!)
binary=$(built test --features penstock-store/azurite,penstock-device/nvme --test namespace --no-run)
bench=$(built build --features penstock-store/azurite --example bench_device)
through_xnvme=
[ -z "$XNVME" ] || through_xnvme=$(built test --features penstock-store/azurite --test xnvme --no-run)
exam "$binary" "$bench" "$through_xnvme" &
machines+=($!)
status=0
for machine in "${machines[@]}"; do wait "$machine" || status=1; done
cat "$work"/stops.[12] >&2
[ $status = 0 ] || die "test-nvme: failed"
say "test-nvme: passed in $SECONDS s"
