#!/bin/sh

# Ubuntu alone: appended to customize.sh.
# ssh.socket would start sshd at the first connection, and ssh.service requires it.
systemctl --quiet disable ssh.socket

# podman's daemon and its updates. A trial starts the engine that it needs.
systemctl --quiet disable podman.service podman.socket podman-restart.service \
    podman-auto-update.service podman-auto-update.timer podman-clean-transient.service
