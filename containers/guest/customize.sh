#!/bin/sh
# Runs once inside the new root file system, after its packages are installed. It creates what must
# exist before the first boot: login keys, the network card's address, the console. The roles do the
# rest.
set -eu

# Login by key only, as root and as the ordinary user `bench`. The host key is made with the image,
# so that the controller knows it before the first connection.
useradd --create-home --uid 1000 --shell /bin/bash --password '*' bench
for home in /root /home/bench; do
    install -d -m 0700 "$home/.ssh"
    install -m 0600 /pagecage-build/authorized_keys "$home/.ssh/authorized_keys"
done
chown -R bench:bench /home/bench/.ssh
rm -f /etc/ssh/ssh_host_*
install -m 0600 /pagecage-build/host_key /etc/ssh/ssh_host_ed25519_key
install -m 0644 /pagecage-build/host_key.pub /etc/ssh/ssh_host_ed25519_key.pub
cat > /etc/ssh/sshd_config.d/10-pagecage.conf <<'END'
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UseDNS no
MaxSessions 64
PrintMotd no
HostKey /etc/ssh/ssh_host_ed25519_key
END
# The banner and the "last login" line cost time at every login.
sed -i -E '/pam_(motd|mail|lastlog2?)\.so/d' /etc/pam.d/sshd
# Root needs no login session. Registering one starts a user manager, half a second on an emulated
# machine.
sed -i '/pam_systemd\.so/i session [success=1 default=ignore] pam_succeed_if.so quiet uid = 0' /etc/pam.d/common-session

# bench lingers without a login. The file is written directly because loginctl needs a running
# machine.
mkdir -p /var/lib/systemd/linger
touch /var/lib/systemd/linger/bench

# One network card with a fixed address, so that no daemon is needed.
cat > /etc/systemd/system/pagecage-network.service <<'END'
[Unit]
Description=Address of the only network card
DefaultDependencies=no
After=systemd-udevd.service sys-subsystem-net-devices-eth0.device
Wants=sys-subsystem-net-devices-eth0.device
Before=ssh.service network.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/ip address replace 10.0.2.15/24 dev eth0
ExecStart=/usr/bin/ip link set eth0 up
[Install]
WantedBy=multi-user.target
END
systemctl --quiet enable pagecage-network.service ssh.service
systemctl --quiet mask systemd-networkd-wait-online.service getty@tty1.service serial-getty@ttyS0.service

# Container engines start when a trial needs one. They make no bridge: there is no network behind
# it, and creating it takes seconds on an emulated machine. Containers share the guest's network.
systemctl --quiet disable docker.service docker.socket containerd.service
mkdir -p /etc/docker
printf '{"bridge": "none", "iptables": false, "ip6tables": false}\n' > /etc/docker/daemon.json

# Programs of the engines that nothing here starts, 150 MB: tools for tests and debugging, shims of
# containerd before its second interface, and network plugins, since containers share the network.
rm -rf /usr/lib/cni /usr/libexec/podman/podman-testing /usr/bin/ctr /usr/bin/containerd-stress \
    /usr/bin/containerd-shim /usr/bin/containerd-shim-runc-v1

# The disk is a temporary copy, so journals are kept in memory.
mkdir -p /etc/systemd/journald.conf.d
printf '[Journal]\nStorage=volatile\nRuntimeMaxUse=16M\n' > /etc/systemd/journald.conf.d/10-pagecage.conf

echo pagecage-guest > /etc/hostname
printf '127.0.0.1 localhost pagecage-guest\n' > /etc/hosts
printf '/dev/vda / ext4 noatime 0 1\n' > /etc/fstab
: > /etc/machine-id
rm -rf /pagecage-build
