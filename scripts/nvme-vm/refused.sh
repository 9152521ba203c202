# usage: refused.sh PENSTOCK DEVICE: whether another process is kept from a device, and told why.
"$1" nvme ls "$2" 2>&1 | grep -o 'another process has the device open'
