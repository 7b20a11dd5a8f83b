# shellcheck shell=sh
# The log of all fakes in this folder, and the misbehaviour that a test can request; read with `.`.
# FAKE_* variables have the paths of the fake machine (set by tests/fake_host/machine.py).

note() {
    printf '%s\n' "$*" >>"$FAKE_LOG"
}

# Whether the list $1 (FAKE_FAILS, FAKE_FORGETS, FAKE_SIGNALS, FAKE_SLOW, FAKE_STALLS ...) names $2.
asked() {
    case " $1 " in
    *" $2 "*) return 0 ;;
    *) return 1 ;;
    esac
}

# Act as the test requested for this event: read $FAKE_FILE or drop it from the page cache, like
# another process; end the agent while it waits for this fake, or keep it waiting.
happen() {
    if asked "${FAKE_READS-}" "$1"; then
        cat "$FAKE_FILE" >/dev/null
        note "another process reads at $1"
    fi
    if asked "${FAKE_DROPS-}" "$1"; then
        dd "if=$FAKE_FILE" iflag=nocache count=0 status=none
        note "another process drops at $1"
    fi
    if asked "${FAKE_SIGNALS-}" "$1"; then
        kill -s "${FAKE_SIGNAL:-TERM}" "$FAKE_AGENT"
        sleep 0.2
    fi
    if asked "${FAKE_STALLS-}" "$1"; then
        exec sleep 60
    fi
}
