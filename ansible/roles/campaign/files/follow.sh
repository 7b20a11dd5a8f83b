#!/bin/sh
# Prints what is beyond OFFSET in DIRECTORY/stream: three lines (the unit's state; its exit status, or `gone` where nothing is
# left of it; the last words of its standard error), then the bytes in base64. Waits up to SECONDS for something to be there, asleep in tail.
# Usage: follow.sh DIRECTORY UNIT OFFSET SECONDS
set -eu
stream=$1/stream said=$1/said unit=$2 offset=$3 seconds=$4
most_bytes=4194304

show() { systemctl show --property="$1" --value "$unit"; }
length() { stat --format=%s "$stream" 2> /dev/null || echo 0; }
works() { case $state in active | activating | deactivating | reloading) return 0 ;; *) return 1 ;; esac; }

state=$(show ActiveState)
if [ "$(length)" -le "$offset" ] && works; then
    timeout "$seconds" tail --follow=name --retry --bytes=+$((offset + 1)) --pid="$(show MainPID)" "$stream" 2> /dev/null |
        head -c 1 > /dev/null || :
    state=$(show ActiveState)
fi
# It was asked before the bytes are read: when the unit had ended by then, they are all there.
if works; then echo working; else echo ended; fi
if [ -e "$stream" ]; then show ExecMainStatus; else echo gone; fi
tail --lines=1 "$said" 2> /dev/null | tr -d '\n' || :
echo
tail --bytes=+$((offset + 1)) "$stream" 2> /dev/null | head -c "$most_bytes" | base64 --wrap=0
