#!/bin/sh
# Prints a line `+ SENTENCE. Fix: COMMAND` for each reason why this host must not be provisioned as
# requested. The `+` separates these lines from messages of sudo and login shells. Changes nothing.
# Needs only programs that every distribution has, and no Python.
#
#   survey.sh LABEL DATA_DIR DEVICE|none|"" USER...
set -eu
export LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin
label=$1 data_dir=$2 device=$3
shift 3
SAMPLES=64 EDGE_BYTES=67108864

refuse() { # sentence, fix
    echo "+ $1. Fix: $2"
}

unknown_users() {
    for user; do
        id -u "$user" > /dev/null 2>&1 || refuse "there is no user $user to delegate to" "useradd --create-home $user"
    done
}

directory() {
    case $data_dir in
        "") refuse "no directory is named for data" "set pagecage_data_dir for this host in ansible/inventory" ;;
        /) refuse "the data directory cannot be /" "set pagecage_data_dir for this host in ansible/inventory" ;;
        /*) ;;
        *) refuse "the data directory $data_dir is not an absolute path" "set pagecage_data_dir in ansible/inventory" ;;
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

# Whether a device without signatures has data: both ends are read completely, the rest in samples.
is_written() {
    bytes=$(blockdev --getsize64 "$1")
    [ "$bytes" -le "$EDGE_BYTES" ] && { differs_from_zero "$1" 0 "$bytes"; return; }
    differs_from_zero "$1" 0 "$EDGE_BYTES" && return
    differs_from_zero "$1" "$((bytes - EDGE_BYTES))" "$EDGE_BYTES" && return
    place=1
    while [ "$place" -lt "$SAMPLES" ]; do
        differs_from_zero "$1" "$((bytes * place / SAMPLES))" 4096 && return
        place=$((place + 1))
    done
    return 1
}

in_use() { # real name of the device; prints each present use of it
    sys=/sys/class/block/${1##*/}
    awk -v device="$1" '$1 == device { print "swap space" }' /proc/swaps
    for holder in "$sys"/holders/*; do
        [ ! -e "$holder" ] || echo "a part of ${holder##*/}"
    done
    for partition in "$sys"/*/partition; do
        [ ! -e "$partition" ] || { echo "a disk with partitions" && break; }
    done
    findmnt --noheadings --output TARGET --source "$1" | awk -v data_dir="$data_dir" '$1 != data_dir { print "mounted at " $1 }'
}

# A user of the device may be invisible here (another mount namespace). mke2fs asks the kernel; -n
# makes nothing.
is_busy() {
    ! findmnt --mountpoint "$data_dir" --source "$1" > /dev/null || return 1
    command -v mke2fs > /dev/null && mke2fs -n "$1" < /dev/null 2>&1 | grep -q "in use by the system"
}

has_our_label() { # device
    [ "$(signatures "$1")" = "ext4 $label" ]
}

blank_or_labelled() {
    fix="name another in pagecage_data_device, or, if nothing on it is needed, run on the host: blkdiscard -f -z $device"
    real=$(readlink -f "$device")
    used=$(in_use "$real" | head -n 1)
    [ -n "$used" ] || ! is_busy "$real" || used="in use (mke2fs -n says so)"
    held=$(signatures "$real" | head -n 1)
    if [ -n "$used" ]; then
        refuse "$device is $used" "name another in pagecage_data_device"
    elif has_our_label "$real"; then
        :
    elif [ -n "$held" ]; then
        refuse "$device is not blank: it holds ${held% } (wipefs)" "$fix"
    elif is_written "$real"; then
        refuse "$device is not blank: it holds data of a kind that wipefs does not know" "$fix"
    fi
}

mount_point() { # refuses a mount that would hide files
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
        refuse "$device is not a block device" "set pagecage_data_device; $choose"
    else
        blank_or_labelled
        mount_point
    fi
}

unknown_users "$@"
directory
disk
