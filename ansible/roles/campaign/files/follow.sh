#!/bin/sh
# Prints three lines and then, in base64, the bytes of DIRECTORY/stream after OFFSET. The lines are:
# the state of the unit; its exit status, or `gone` if nothing of it is left; the last line of its
# standard error. Waits up to SECONDS for more bytes, in tail(1).
#
#   follow.sh DIRECTORY UNIT OFFSET SECONDS
set -eu
stream=$1/stream errors=$1/stderr unit=$2 offset=$3 seconds=$4
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
# The state is read before the bytes: if the unit had ended by then, all bytes are there.
if works; then echo working; else echo ended; fi
if [ -e "$stream" ]; then show ExecMainStatus; else echo gone; fi
tail --lines=1 "$errors" 2> /dev/null | tr -d '\n' || :
echo
tail --bytes=+$((offset + 1)) "$stream" 2> /dev/null | head -c "$most_bytes" | base64 --wrap=0
