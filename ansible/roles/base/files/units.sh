#!/bin/sh
# Masks and unmasks units; prints `+ UNIT` for each unit that it changed.
#   units.sh mask FILE UNIT...   save the masked units, and whether each was active, in FILE
#   units.sh unmask FILE
# Without a running systemd (a root file system before its boot) no unit is stopped or started.
set -eu
export LC_ALL=C

running() { [ -d /run/systemd/system ]; }

remember() { # file, units...
    file=$1
    shift
    mkdir -p "${file%/*}"
    for unit; do
        grep -qs "^$unit " "$file" || echo "$unit $(systemctl is-active "$unit" 2> /dev/null | head -n 1)" >> "$file"
    done
}

# Units that systemd generates from init scripts at its start. Before the first boot, systemctl does
# not list them.
of_scripts() { # units...
    running && return
    for unit; do
        [ -x "/etc/init.d/${unit%.service}" ] || continue
        [ -L "/etc/systemd/system/$unit" ] || [ -e "/usr/lib/systemd/system/$unit" ] || echo "$unit"
    done
}

mask() {
    file=$1
    shift
    [ $# -gt 0 ] || return 0
    found=$(systemctl list-unit-files --no-legend --no-pager "$@" | awk '$2 != "masked" { print $1 }')
    found="$found $(of_scripts "$@")"
    found=${found# }
    [ -n "$found" ] || return 0
    # shellcheck disable=SC2086 # names of units
    set -- $found
    # Save before any change. Stop before masking, because a running unit that is masked counts as
    # failed.
    remember "$file" "$@"
    ! running || systemctl stop "$@"
    systemctl mask "$@" 2>&1
    printf '+ %s\n' "$@"
}

unmask() {
    [ -s "$1" ] || return 0
    cut -d' ' -f1 "$1" | xargs -r systemctl unmask 2>&1
    sed 's/^/+ /' "$1"
    ! running || awk '$2 == "active" { print $1 }' "$1" | xargs -r systemctl start
    rm -f "$1"
}

"$@"
