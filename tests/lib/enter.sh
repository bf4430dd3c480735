#!/bin/sh
# enter.sh ROOT FOLDER PACKAGE PLACE CHECKOUT COMMAND...: run a command in a Debian root that `provision_roots.py` built.
#
# To be started in a mount namespace of its own (`unshare --mount`): what is mounted here ends with the command. The root
# is not written to: its parts are mounted, with the checkout and pypmix's PACKAGE at its PLACE, on an empty file system.
# Only the job's FOLDER is shared for writing, and the root's store of Python bytecode. The command takes this process's
# place, and with it its pid.
set -eu
root=$1 folder=$2 package=$3 place=$4 checkout=$5
shift 5
new=$root/mnt

mount -t tmpfs -o mode=755,size=16m none "$new"
show() { # show OPTIONS SOURCE TARGET
    mkdir -p "$new$3"
    mount -o "$1" "$2" "$new$3"
}
for part in "$root"/usr/*; do
    # a checkout may lie below /usr/src
    [ "$part" = "$root/usr/src" ] || show bind,ro "$part" "${part#"$root"}"
done
for part in "$root"/*; do
    [ ! -L "$part" ] || cp -P "$part" "$new/"
done
show bind,ro "$root/etc" /etc
show rbind /proc /proc
show rbind /sys /sys
show rbind /dev /dev
mkdir "$new/root" "$new/run"
mkdir -m 1777 "$new/tmp"
show bind,ro "$checkout" "$checkout"
show bind,ro "$package" "$place/pypmix"
show bind "$root/bytecode" /bytecode
show bind "$folder" "$folder"
exec chroot "$new" /usr/bin/env -C "$folder" -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX=/bytecode "$@"
