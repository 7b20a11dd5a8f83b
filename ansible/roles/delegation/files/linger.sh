#!/bin/sh
# Lets the managers of users run without a login, and undoes that; prints a line per changed user.
#   linger.sh enable FILE USER...   record the changed users in FILE
#   linger.sh disable FILE
# Without a running systemd (a root file system before its boot) it only writes the file that logind
# reads at boot.
set -eu
LINGERING=/var/lib/systemd/linger

running() { [ -d /run/systemd/system ]; }

enable() {
    file=$1
    shift
    for user; do
        [ ! -e "$LINGERING/$user" ] || continue
        if running; then loginctl enable-linger "$user"; else mkdir -p "$LINGERING" && : > "$LINGERING/$user"; fi
        mkdir -p "${file%/*}"
        echo "$user" >> "$file"
        echo "+ $user lingers"
    done
}

disable() {
    [ -s "$1" ] || return 0
    while read -r user; do
        if running; then loginctl disable-linger "$user"; else rm -f "$LINGERING/$user"; fi
        echo "+ $user no longer lingers"
    done < "$1"
    rm -f "$1"
    running || rmdir "$LINGERING" 2> /dev/null || :
}

"$@"
