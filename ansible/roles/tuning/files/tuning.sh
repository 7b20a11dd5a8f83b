#!/bin/sh
# Sets and restores settings of the running kernel. Prints a line per change.
#   tuning.sh set FILE NAME=VALUE...   save the previous values in FILE, `PATH VALUE` per line
#   tuning.sh restore FILE
# NAME is a sysctl (vm.laptop_mode), or `governor` for the frequency governor of every CPU. Settings
# that the kernel does not have are skipped. Without a running systemd nothing is set: the kernel
# under an unbooted root file system is another machine's.
set -eu
export LC_ALL=C
SYSCTLS=/proc/sys
CPUS=/sys/devices/system/cpu

remember() { # file, path
    grep -qs "^$2 " "$1" || echo "$2 $(tr '\t' ' ' < "$2")" >> "$1"
}

write() { # file, path, value
    [ -e "$2" ] || return 0
    [ "$(tr '\t' ' ' < "$2")" != "$3" ] || return 0
    remember "$1" "$2"
    echo "$3" > "$2"
    echo "+ $2 $3"
}

governor() { # file, value
    for path in "$CPUS"/cpu[0-9]*/cpufreq/scaling_governor; do
        grep -qsw "$2" "${path%/*}/scaling_available_governors" || continue
        write "$1" "$path" "$2"
    done
}

set_all() {
    [ -d /run/systemd/system ] || return 0
    file=$1
    shift
    mkdir -p "${file%/*}"
    for pair; do
        case $pair in
            governor=*) governor "$file" "${pair#*=}" ;;
            *) write "$file" "$SYSCTLS/$(echo "${pair%%=*}" | tr . /)" "${pair#*=}" ;;
        esac
    done
}

restore() {
    [ -s "$1" ] || return 0
    while read -r path value; do
        [ -e "$path" ] && echo "$value" > "$path" && echo "+ $path $value"
    done < "$1"
    rm -f "$1"
}

case $1 in
    set) shift && set_all "$@" ;;
    restore) restore "$2" ;;
esac
