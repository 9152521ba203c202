# What runs in the virtual machine that is stopped: looks at what the last stop left, and commits
# on both devices until the next one. It tells the host by the second serial line.
set -uo pipefail
shared=/mnt
io=$(cat $shared/io)
ending=ng
[ "$io" != uring ] || ending=blk
tell() { echo "$*" > /dev/ttyS1; }

# commit SERIAL FIRST: until the machine is stopped.
commit() {
  "$shared/killed" child "/dev/vm/$1.$ending" "$io" "$2" | while read -r number; do
    tell said "$1" "$number"
  done
  tell failed "$1 by $io"
}

# The stop may have cut a line.
tell
tell boot
declare -A next
for serial in lba512 lba4096; do
  next[$serial]=$("$shared/killed" check "/dev/vm/$serial.$ending" "$io") ||
    { tell failed "check of $serial by $io"; exit 1; }
  tell next $serial "${next[$serial]}"
done
for serial in lba512 lba4096; do commit $serial "${next[$serial]}" & done
wait
