#!/bin/sh
# Masks units and gives them back; prints `+ UNIT` for each that it changed, and nothing where all is as wanted.
#   units.sh mask FILE UNIT...   FILE remembers which were masked here, and whether each was active
#   units.sh unmask FILE
# Where systemd is not running (a root file system before its boot) nothing is stopped or started.
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

# Units that systemd makes of old scripts when it starts; in a root file system before its boot nothing lists them.
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
    # Remembered before anything is changed; stopped before masked: a unit that runs when it is masked counts as failed.
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
