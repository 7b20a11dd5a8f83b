#!/bin/sh
# Says why this host must not be provisioned as it is asked: a line `+ SENTENCE. Fix: COMMAND` for each reason, nothing where
# there is none (`+`, because sudo and login shells mix words of their own into what we say). Changes nothing, and needs neither Python nor anything that is not in every distribution.
# Usage: survey.sh LABEL DATA_DIR DEVICE|none|"" USER...
set -eu
export LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin
label=$1 data_dir=$2 device=$3
shift 3
PLACES=64 EDGE_BYTES=67108864

refuse() { # sentence, mend
    echo "+ $1. Fix: $2"
}

users_that_are_not_there() {
    for user; do
        id -u "$user" > /dev/null 2>&1 || refuse "there is no user $user to delegate to" "useradd --create-home $user"
    done
}

directory() {
    case $data_dir in
        "") refuse "no directory is named for data" "set pagecage_data_dir for this host in ansible/inventory" ;;
        /) refuse "the data directory cannot be /" "set pagecage_data_dir for this host in ansible/inventory" ;;
        /*) ;;
        *) refuse "the data directory $data_dir is no absolute path" "set pagecage_data_dir in ansible/inventory" ;;
    esac
    if [ -e "$data_dir" ] && ! [ -d "$data_dir" ]; then
        refuse "the data directory $data_dir is a file" "set pagecage_data_dir for this host in ansible/inventory"
    fi
}

# --- the device ----------------------------------------------------------------------------------------------------

signatures() { # every signature that libblkid knows, `TYPE LABEL` a line: file systems, swap, LVM, RAID, LUKS, partitions
    wipefs --noheadings --output TYPE,LABEL "$1" | tr -s ' '
}

differs_from_zero() { # device, offset, bytes
    ! cmp -s -n "$3" -i "$2:0" "$1" /dev/zero
}

# What a device without any signature holds: both ends are read whole, and the rest at so many places.
is_written() {
    bytes=$(blockdev --getsize64 "$1")
    [ "$bytes" -le "$EDGE_BYTES" ] && { differs_from_zero "$1" 0 "$bytes"; return; }
    differs_from_zero "$1" 0 "$EDGE_BYTES" && return
    differs_from_zero "$1" "$((bytes - EDGE_BYTES))" "$EDGE_BYTES" && return
    place=1
    while [ "$place" -lt "$PLACES" ]; do
        differs_from_zero "$1" "$((bytes * place / PLACES))" 4096 && return
        place=$((place + 1))
    done
    return 1
}

in_use() { # real name of the device: what uses it now, in words; nothing where nobody does
    sys=/sys/class/block/${1##*/}
    awk -v device="$1" '$1 == device { print "swap space" }' /proc/swaps
    for holder in "$sys"/holders/*; do
        [ ! -e "$holder" ] || echo "a part of ${holder##*/}"
    done
    for partition in "$sys"/*/partition; do
        [ ! -e "$partition" ] || { echo "a disk with partitions" && break; }
    done
    findmnt --noheadings --output TARGET --source "$1" | awk -v ours="$data_dir" '$1 != ours { print "mounted at " $1 }'
}

# Who uses it may not be seen from here (another mount namespace); mke2fs asks the kernel, and makes nothing with -n.
is_busy() {
    ! findmnt --mountpoint "$data_dir" --source "$1" > /dev/null || return 1
    command -v mke2fs > /dev/null && mke2fs -n "$1" < /dev/null 2>&1 | grep -q "in use by the system"
}

is_ours() { # device
    [ "$(signatures "$1")" = "ext4 $label" ]
}

blank_or_ours() {
    mend="name another in pagecage_data_device, or, if nothing on it is needed, run on the host: blkdiscard -f -z $device"
    real=$(readlink -f "$device")
    used=$(in_use "$real" | head -n 1)
    [ -n "$used" ] || ! is_busy "$real" || used="in use (mke2fs -n says so)"
    held=$(signatures "$real" | head -n 1)
    if [ -n "$used" ]; then
        refuse "$device is $used" "name another in pagecage_data_device"
    elif is_ours "$real"; then
        :
    elif [ -n "$held" ]; then
        refuse "$device is not blank and not ours: it holds ${held% } (wipefs)" "$mend"
    elif is_written "$real"; then
        refuse "$device is not blank and not ours: it holds data of a kind that wipefs does not know" "$mend"
    fi
}

mount_point() { # what would be hidden
    mounted=$(findmnt --noheadings --output SOURCE --mountpoint "$data_dir" || :)
    if [ -n "$mounted" ] && [ "$mounted" != "$(readlink -f "$device")" ]; then
        refuse "$data_dir is where $mounted is mounted" "set another pagecage_data_dir"
    elif [ -z "$mounted" ] && [ -n "$(ls -A "$data_dir" 2> /dev/null)" ]; then
        refuse "$data_dir holds files, which mounting $device there would hide" "move them, or set another pagecage_data_dir"
    fi
}

disk() {
    choose="choose one of \`lsblk\` on the host, by its name in /dev/disk/by-id; or none, for the disk behind $data_dir"
    if [ "$device" = none ]; then
        return
    elif [ -z "$device" ]; then
        refuse "no device is named for data, and there is no default" "set pagecage_data_device; $choose"
    elif ! [ -e "$device" ]; then
        refuse "there is no device $device" "set pagecage_data_device; $choose"
    elif ! [ -b "$device" ]; then
        refuse "$device is no block device" "set pagecage_data_device; $choose"
    else
        blank_or_ours
        mount_point
    fi
}

users_that_are_not_there "$@"
directory
disk
