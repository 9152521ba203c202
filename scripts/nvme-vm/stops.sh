# What runs in the virtual machine that is stopped: looks at what the last stop left, and commits
# on both devices until the next one. It tells the host by the second serial line.
set -uo pipefail
shared=/mnt
io=$(cat $shared/io)
ending=ng
[ "$io" != uring ] || ending=blk
# The stop may have cut a line.
printf '\nboot\n' > /dev/ttyS1
"$shared/commits.sh" work "/dev/vm/lba512.$ending" "/dev/vm/lba4096.$ending" "$io" > /dev/ttyS1 2> "$shared/why"
echo "failed by $io: $(tr '\n' ' ' < $shared/why)" > /dev/ttyS1
