#!/bin/sh
# Installs and removes packages with dpkg or rpm.
#   packages.sh missing NAME...  print `+ NAME` for each package that is not installed
#   packages.sh begin FILE       record the installed packages, before others are added
#   packages.sh python           install python3, which Ansible needs
#   packages.sh end FILE         add packages installed since `begin` to FILE; delete their archives
#   packages.sh remove FILE      remove the packages in FILE; keep and name those that others need
# System accounts that were created with packages, and that no package removes, are treated alike
# (FILE.users, FILE.groups).
set -eu
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
PATH=$PATH:/usr/sbin:/sbin

list() { # sorted
    if command -v dpkg-query > /dev/null; then
        # shellcheck disable=SC2016 # dpkg's own variables
        dpkg-query -W -f '${Package} ${db:Status-Status}\n' | sed -n 's/ installed$//p'
    else
        rpm -qa --qf '%{NAME}\n'
    fi | sort -u
}

missing() {
    printf '%s\n' "$@" | sort -u > "/tmp/.pagecage-$$"
    list | comm -13 - "/tmp/.pagecage-$$" | sed 's/^/+ /'
    rm -f "/tmp/.pagecage-$$"
}

accounts() { # passwd or group
    cut -d: -f1 "/etc/$1" | sort
}

begin() {
    mkdir -p "${1%/*}"
    list > "$1.before"
    accounts passwd > "$1.users.before"
    accounts group > "$1.groups.before"
}

add() { # FILE; current names on standard input. Adds the new names to FILE, and leaves them in FILE.new
    touch "$1"
    comm -13 "$1.before" - > "$1.new"
    sort -u -o "$1" "$1.new" "$1"
    rm -f "$1.before"
}

end() {
    accounts passwd | add "$1.users"
    accounts group | add "$1.groups"
    list | add "$1"
    while read -r name; do
        rm -f "/var/cache/apt/archives/${name}_"*.deb
    done < "$1.new"
    rm -f "$1.new" "$1.users.new" "$1.groups.new"
    [ -s "$1" ] || { rm -f "$1" "$1.users" "$1.groups" && rmdir --ignore-fail-on-non-empty "${1%/*}"; }
}

python() {
    if command -v apt-get > /dev/null; then
        apt-get -q update && apt-get -q install -y --no-install-recommends python3
    else
        dnf -q install -y python3 python3-libdnf5
    fi
}

forget_accounts() { # FILE; userdel also removes the user's own group
    accounts passwd | comm -12 - "$1.users" | xargs -r -n 1 userdel
    accounts group | comm -12 - "$1.groups" | xargs -r -n 1 groupdel
}

# dpkg keeps packages that others need and removes the rest; rpm removes all or none.
remove() {
    [ -e "$1" ] || return 0
    list | comm -12 - "$1" > "$1.there"
    if command -v dpkg > /dev/null; then
        xargs -r dpkg --purge < "$1.there" > "$1.log" 2>&1 || :
    else
        xargs -r rpm -e < "$1.there" > "$1.log" 2>&1 || :
    fi
    list | comm -12 - "$1.there" > "$1.kept"
    sed 's/^/kept, because another package needs it: /' "$1.kept"
    comm -23 "$1.there" "$1.kept" | sed 's/^/+ removed /'
    [ -s "$1.kept" ] || forget_accounts "$1"
    rm -f "$1.there" "$1.log" "$1.kept"
}

"$@"
