#!/bin/sh
# Lets users' managers run without a login, and takes that back; prints a line for each user whom it changed.
#   linger.sh enable FILE USER...   FILE remembers whom
#   linger.sh disable FILE
# Where systemd is not running (a root file system before its boot) the file that logind reads at boot is all there is to do.
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
        echo "+ $user lingers no more"
    done < "$1"
    rm -f "$1"
    running || rmdir "$LINGERING" 2> /dev/null || :
}

"$@"
