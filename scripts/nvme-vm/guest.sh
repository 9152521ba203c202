# What runs in the virtual machine: the exam on a namespace of 512-byte and one of 4096-byte blocks,
# then a file into a volume by one io and out of it by the others.
set -euo pipefail
export RUST_BACKTRACE=0
# Names of SHARED, as the guest sees it.
shared=/mnt
penstock() { "$shared/penstock" nvme "$@"; }

for serial in lba512 lba4096; do
  echo "== $serial: the exam"
  PENSTOCK_TEST_NVME=/dev/vm/$serial.ng "$shared/exam" -q --test-threads=1
  echo "== $serial: volumes"
  ng=/dev/vm/$serial.ng block=/dev/vm/$serial.blk
  penstock format $ng --io passthrough --force
  penstock import $ng "$shared/file" --db one --io passthrough
  penstock import $ng "$shared/file" --db two --io ioctl
  penstock import $block "$shared/file" --db three --io uring
  for name in one two three; do
    penstock export $ng "$shared/$serial.$name.a" --db $name --io passthrough
    penstock export $block "$shared/$serial.$name.b" --db $name --io ioctl
    penstock export $block "$shared/$serial.$name.c" --db $name --io direct
    for copy in a b c; do cmp "$shared/file" "$shared/$serial.$name.$copy"; done
  done
  penstock check $ng --io passthrough
done
echo "== all right"
