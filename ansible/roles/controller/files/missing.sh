#!/bin/sh
# Prints the needs that this machine lacks, one word per line.
#
#   missing.sh LEAST_RUST NEED...
#
# Only ordinary users need `subids` and `newuidmap`. For a user who is not root it also prints
# `become`, then `sudo` if there is no sudo, and `password` if sudo needs a password.
set -eu
PATH=$PATH:/usr/sbin:/sbin:${CARGO_HOME:-$HOME/.cargo}/bin
# Debian and Ubuntu install a newer Rust beside the default one, in a folder that is not on PATH.
for folder in /usr/lib/rust-*/bin; do
    [ ! -d "$folder" ] || PATH=$PATH:$folder
done
least=$1
shift

any_of() { # paths
    for path; do
        [ ! -e "$path" ] || return 0
    done
    return 1
}

case $(uname -m) in x86_64) other=aarch64 ;; *) other=x86_64 ;; esac

is_program() { command -v "$1" > /dev/null; }

at_least() { # least version, version
    [ -n "$2" ] && [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

has_rust() {
    for tool in cargo rustc; do
        at_least "$least" "$("$tool" --version 2> /dev/null | cut -d' ' -f2)" || return 1
    done
}

# Linking is the test, because the path of the library differs between distributions.
links_statically() {
    echo 'int main(void) { return 0; }' | gcc -static -x c -o /dev/null - 2> /dev/null
}

links_fuzzer() {
    echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' |
        clang -fsanitize=fuzzer,address -x c -o /dev/null - 2> /dev/null
}

has_subids() {
    for table in /etc/subuid /etc/subgid; do
        grep -qE "^($(id -un)|$(id -u)):" "$table" 2> /dev/null || return 1
    done
}

is_there() { # need
    case $1 in
        rust) has_rust ;;
        static-libc) links_statically ;;
        qemu-system) is_program "qemu-system-$(uname -m)" ;;
        cross-gcc) is_program "$other-linux-gnu-gcc" ;;
        qemu-user) is_program "qemu-$other-static" || is_program "qemu-$other" ;;
        qemu-system-cross) is_program "qemu-system-$other" ;;
        seabios) [ "$(uname -m)" != x86_64 ] || any_of /usr/share/seabios/bios-256k.bin /usr/share/qemu*/bios-256k.bin ;;
        debian-keyring) any_of /usr/share/keyrings/debian-archive-keyring.* ;;
        newuidmap) [ "$(id -u)" = 0 ] || is_program newuidmap ;;
        subids) [ "$(id -u)" = 0 ] || has_subids ;;
        # It needs root and type information of the kernel (BTF), and its packages are large.
        bpftrace) [ "$(id -u)" != 0 ] || [ ! -e /sys/kernel/btf/vmlinux ] || is_program bpftrace ;;
        libfuzzer) links_fuzzer ;;
        rustfmt) cargo fmt --version > /dev/null 2>&1 ;;
        clippy) cargo clippy --version > /dev/null 2>&1 ;;
        chromium) is_program chromium || is_program chromium-browser ;;
        *) is_program "$1" ;;
    esac
}

for need; do
    is_there "$need" || echo "$need"
done
if [ "$(id -u)" != 0 ]; then
    echo become
    is_program sudo || echo sudo
    sudo -n true 2> /dev/null || echo password
fi
