# Runs in the guest, as root, first thing after a restore: the clock and the random numbers are those of the saved state.
# It answers "awake" and is then told the time (seconds with a fraction) and 64 random bytes in hexadecimal; so the time
# is not late by the start of a shell. Then it waits for the data disk, mounts it and says what it found.
set -eu
user=$1 data_dir=$2 spool_dir=$3
echo awake
read -r now seed
date --utc --set="@$now" > /dev/null
date --utc +%s.%N

# RNDADDENTROPY mixes the bytes in and counts them, RNDRESEEDCRNG makes every CPU's generator begin anew (random(4)).
perl -e 'open(my $r, ">", "/dev/random") or die "/dev/random: $!";
    my $seed = pack("H*", $ARGV[0]);
    ioctl($r, 0x40085203, pack("i2", 8 * length $seed, length $seed) . $seed) or die "RNDADDENTROPY: $!";
    ioctl($r, 0x5207, 0) or die "RNDRESEEDCRNG: $!"' "$seed"
dmesg | grep -c 'crng reseeded due to virtual machine fork' || true

disk=/dev/disk/by-id/virtio-pagecage-data
tries=0
until [ -b "$disk" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 500 ] || { echo "the data disk did not appear" >&2; exit 1; }
    sleep 0.02
done
mkdir -p /data
mount -o noatime "$disk" /data
install -d -o "$user" -m 0755 "$data_dir" "$spool_dir"
readlink -f "$disk"
