#!/bin/sh
# enter.sh ROOT HOME INDEX COMMAND...: run a command as the user `stranger` of a Debian root that `provision_roots.py` built.
#
# To be started in namespaces of its own (mounts, processes, network, host name): what is done here ends with them. The
# network has loopback only. The root is not written to; HOME is the user's, and pip finds packages in INDEX alone.
set -eu
root=$1 home=$2 index=$3
shift 3
new=$root/mnt

ip link set lo up
echo n0 >/proc/sys/kernel/hostname
mount --bind "$root" "$new"
mount -o remount,bind,ro "$new"
mount -t proc proc "$new/proc"
mount --rbind /dev "$new/dev"
mount -t tmpfs -o mode=1777 none "$new/tmp"
mount --bind "$home" "$new/home/stranger"
mount --bind "$index" "$new/index"
exec chroot --userspec=stranger:stranger "$new" /usr/bin/env -i -C /home/stranger HOME=/home/stranger USER=stranger \
    PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 PIP_NO_INDEX=1 PIP_FIND_LINKS=/index "$@"
