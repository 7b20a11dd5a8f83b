#!/bin/sh
# Prints a line `+ SENTENCE` for each thing that a host lacks for measuring, and finally
# `+ inspected`. Changes nothing.
#
#   inspect.sh RUNNING AGENT_DIR DATA_DIR DEVICE|none|"" SYSCTLS UNITS USER...
#
# RUNNING is `True` on a running machine, unlike in a root file system before its boot. SYSCTLS are
# NAME=VALUE words.
set -eu
export LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin
running=$1 agent_dir=$2 data_dir=$3 device=$4 sysctls=$5 units=$6
shift 6

tools() {
    for tool in iostat sar sadf vmtouch bpftrace fio nbdkit nbd-client java python3 systemd-run; do
        command -v "$tool" > /dev/null || echo "missing tool $tool"
    done
}

machine() {
    test "$(cat /proc/1/comm)" = systemd || echo "systemd is not PID 1"
    for controller in io memory cpu; do
        grep -qw "$controller" /sys/fs/cgroup/cgroup.controllers 2> /dev/null || echo "cgroup v2 has no $controller"
    done
    test -r /sys/kernel/btf/vmlinux || echo "the kernel has no BTF"
}

settings() {
    for pair in $sysctls; do
        path=/proc/sys/$(echo "${pair%%=*}" | tr . /)
        [ ! -e "$path" ] || [ "$(cat "$path")" = "${pair#*=}" ] || echo "${pair%%=*} is $(cat "$path"), not ${pair#*=}"
    done
}

units_not_masked() {
    # shellcheck disable=SC2086 # a list of names
    systemctl list-unit-files --no-legend --no-pager $units | awk '$2 != "masked" { print $1 " is not masked" }'
}

data() {
    test -d "$data_dir" || echo "$data_dir does not exist"
    if [ -n "$device" ] && [ "$device" != none ]; then
        mounted=$(findmnt --noheadings --output SOURCE --mountpoint "$data_dir" || :)
        [ "$mounted" = "$(readlink -f "$device")" ] || echo "$device is not mounted at $data_dir"
    fi
}

delegation() {
    test -e /etc/systemd/system/pagecage.slice || echo "pagecage.slice is not installed"
    for user; do
        id=$(id -u "$user" 2> /dev/null) || { echo "there is no user $user" && continue; }
        group=/sys/fs/cgroup/user.slice/user-$id.slice/user@$id.service
        grep -qsw io "$group/cgroup.controllers" || echo "io is not delegated to $user"
    done
}

agent() {
    test -e "$agent_dir/agent.pyz" || echo "$agent_dir/agent.pyz does not exist"
    "$agent_dir/python3" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null ||
        echo "$agent_dir/python3 is not Python 3.11 or newer"
}

everything() {
    tools
    [ "$running" != True ] || machine
    [ "$running" != True ] || settings
    [ -z "$units" ] || units_not_masked
    data
    if [ "$running" = True ]; then delegation "$@"; else delegation; fi
    [ -z "$agent_dir" ] || agent
    echo inspected
}

everything "$@" | sed 's/^/+ /'
