#!/bin/sh
# Runs once inside the new root file system, before customize.sh. It installs the packages that an
# experiment names. None of their services, timers and sockets starts at the boot: an experiment
# starts what it measures, and anything else would disturb it.
set -eu
export LC_ALL=C DEBIAN_FRONTEND=noninteractive

enabled() {
    find /etc/systemd/system /etc/systemd/user /etc/rc[S0-6].d -type l 2> /dev/null | sort
}

# PostgreSQL's packages would make a cluster. Each experiment makes its own, on the data disk.
mkdir -p /etc/postgresql-common/createcluster.d
echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.d/pagecage.conf

enabled > /pagecage-build/enabled
apt-get -q -y --no-install-recommends install "$@"
enabled | comm -13 /pagecage-build/enabled - | xargs -r rm -f
