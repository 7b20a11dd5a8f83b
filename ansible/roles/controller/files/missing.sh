#!/bin/sh
# Prints what this machine lacks, a word a line: packages; `rust` for a toolchain; `subids` for a range of user ids; and
# `become` when whoever runs this is not root. Usage: missing.sh LEAST_RUST PROGRAM=PACKAGE... PATH=PACKAGE...
set -eu
PATH=$PATH:/usr/sbin:/sbin:${CARGO_HOME:-$HOME/.cargo}/bin
least=$1
shift
for pair in "$@"; do
    case $pair in
        /*) [ -e "${pair%%=*}" ] || echo "${pair#*=}" ;;
        *) command -v "${pair%%=*}" > /dev/null || echo "${pair#*=}" ;;
    esac
done
at_least() { [ -n "$1" ] && printf '%s\n%s\n' "$least" "$1" | sort --check=silent --version-sort; }
for tool in cargo rustc; do
    version=$("$tool" --version 2> /dev/null | cut -d' ' -f2) || version=
    at_least "$version" || { echo rust; break; }
done
if [ "$(id -u)" != 0 ]; then
    for table in /etc/subuid /etc/subgid; do
        grep -qE "^($(id -un)|$(id -u)):" "$table" 2> /dev/null || { echo subids; break; }
    done
    echo become
fi
