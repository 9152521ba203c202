# What runs in the virtual machine: the exam on a namespace of 512-byte and one of 4096-byte blocks,
# files into a volume by one io and out of it by the others, databases attached by each io, and by
# each discipline beside the others; a cache of an object store; then devices that are not well.
set -euo pipefail
export RUST_BACKTRACE=0
# The shared folder, as the guest sees it.
shared=/mnt
. $shared/paths
. $shared/duckdb.sh
. $shared/attach.sh
. $shared/variants.sh
. $shared/cache.sh
penstock() { "$PENSTOCK" nvme "$@"; }

for serial in lba512 lba4096; do
  echo "== $serial: the exam"
  PENSTOCK_TEST_NVME=/dev/vm/$serial.ng "$shared/exam" -q --test-threads=1 --skip faults::
  ng=/dev/vm/$serial.ng block=/dev/vm/$serial.blk
  for backend in io_uring_cmd emu; do
    [ -e $shared/exam-xnvme ] || break
    echo "== $serial: the exam through libxnvme, $backend"
    PENSTOCK_TEST_XNVME=$shared/libxnvme.so PENSTOCK_TEST_XNVME_BACKEND=$backend \
      PENSTOCK_TEST_XNVME_DEVICE=$ng $shared/exam-xnvme -q --test-threads=1 xnvme::
  done
  echo "== $serial: volumes"
  penstock format $ng --io passthrough --force
  penstock import $ng "$shared/file" --db one --io passthrough
  penstock import $block "$shared/file" --db two --io ioctl
  for name in one two; do
    penstock export $ng "$shared/$serial.$name.a" --db $name
    penstock export $block "$shared/$serial.$name.b" --db $name --io direct
    for copy in a b; do cmp "$shared/file" "$shared/$serial.$name.$copy"; done
  done
  echo "== $serial: made read-only"
  blockdev --setro $block
  for io in passthrough ioctl direct; do
    device=$ng
    [ $io != direct ] || device=$block
    ! penstock rm $device --db one --io $io 2> "$shared/why" || exit 1
    grep -q 'the device is read-only' "$shared/why"
    penstock ls $device --io $io | grep -q ' one$'
  done
  blockdev --setrw $block
  echo "== $serial: databases"
  databases $ng $block
  penstock check $ng --io passthrough
done
echo "== every io by every discipline; EMULATED: no times of a device"
variants $ng $block 6400
echo "== a cache of an object store"
cached /dev/vm/cache.ng
echo "== devices that fail and devices that go"
# The host does what is asked for on the second serial line.
PENSTOCK_TEST_NVME_BAD=/dev/vm/bad.ng PENSTOCK_TEST_NVME_PULLED_A=/dev/vm/pulled-a.ng \
  PENSTOCK_TEST_NVME_PULLED_B=/dev/vm/pulled-b.blk PENSTOCK_TEST_PULL=/dev/ttyS1 \
  "$shared/exam" -q --test-threads=1 --skip hangs faults::
pulled pulled-c ng passthrough
pulled pulled-d blk uring
echo "== a controller that hangs"
# Milliseconds after which the kernel asks for an abort, and again after which it resets.
echo 2000 > "/sys/block/$(basename "$(readlink -f /dev/vm/hung.blk)")/queue/io_timeout"
PENSTOCK_TEST_NVME_HUNG=/dev/vm/hung.ng PENSTOCK_TEST_PULL=/dev/ttyS1 "$shared/exam" -q hangs
echo "== all right"
