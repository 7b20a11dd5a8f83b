"""Daemon in the guest that prepares a restored guest for trials.

It runs as root and is part of the saved state, so that it answers as soon as the guest is restored.
It reads one JSON object per line from a virtio serial port, and answers each with one:

  {"do": "wake", "unix_seconds": ..., "seed": hexadecimal, "user": ...,
   "mounts": {serial number: mount point}, "directories": [...]}
      sets the clock, adds entropy, mounts the disks, makes the directories
  {"do": "clock", "unix_seconds": ...}
      sets the clock again, now with a shorter delay
  {"do": "release"}
      writes out and unmounts the disks

Standard library only, and sent to the guest as text. It imports the modules that the agent needs
next.
"""

import ctypes
import fcntl
import json
import os
import pwd
import struct
import time
from pathlib import Path
from typing import Any

Message = dict[str, Any]
PORT = Path("/dev/virtio-ports/pagecage")
DISKS = Path("/dev/disk/by-id")
MOUNTED: list[str] = []
RANDOM = Path("/dev/random")
DISK_SECONDS = 20.0
UNPLUGGED_SECONDS = 0.05  # a port whose other end is closed returns empty reads without blocking
RNDADDENTROPY, RNDRESEEDCRNG = 0x40085203, 0x5207  # random(4)
MS_NOATIME = 1024  # mount(2)
LIBC = ctypes.CDLL(None, use_errno=True)


def add_entropy(seed: bytes) -> None:
    """Mix in and credit the bytes, then reseed the generators of all CPUs."""
    with RANDOM.open("wb") as device:
        fcntl.ioctl(device, RNDADDENTROPY, struct.pack("ii", 8 * len(seed), len(seed)) + seed)
        fcntl.ioctl(device, RNDRESEEDCRNG)


def mount_disk(serial: str, mount_point: str) -> str:
    """Wait for a disk to be plugged in, mount it, and return its device."""
    disk, deadline = DISKS / f"virtio-{serial}", time.monotonic() + DISK_SECONDS
    while not disk.exists():
        if time.monotonic() > deadline:
            raise OSError(f"the disk {serial} did not appear")
        time.sleep(0.01)
    device = str(disk.resolve())
    Path(mount_point).mkdir(parents=True, exist_ok=True)
    if LIBC.mount(device.encode(), mount_point.encode(), b"ext4", MS_NOATIME, None):
        reason = os.strerror(ctypes.get_errno())
        raise OSError(f"the disk {serial} cannot be mounted: {reason}")
    MOUNTED.append(mount_point)
    return device


def make_directory(path: str, user: str) -> None:
    """Create a directory that belongs to the measuring user."""
    account = pwd.getpwnam(user)
    Path(path).mkdir(parents=True, exist_ok=True)
    os.chown(path, account.pw_uid, account.pw_gid)


def wake(request: Message) -> Message:
    """Prepare a restored guest: clock, entropy, disks, directories."""
    clock(request)
    add_entropy(bytes.fromhex(request["seed"]))
    devices = {serial: mount_disk(serial, place) for serial, place in request["mounts"].items()}
    for path in request["directories"]:
        make_directory(path, request["user"])
    return {"devices": devices}


def clock(request: Message) -> Message:
    """Set the clock to the time at which the request was sent."""
    time.clock_settime(time.CLOCK_REALTIME, request["unix_seconds"])
    return {}


def release(_: Message) -> Message:
    """Write out and unmount the disks, apart from those in use, which their journals repair."""
    os.sync()
    left = [place for place in MOUNTED if LIBC.umount(place.encode()) != 0]
    MOUNTED[:] = left
    return {"unmounted": not left}


REQUESTS = {"wake": wake, "clock": clock, "release": release}


def answer(line: bytes) -> bytes:
    """Return the answer to one request; errors are part of the answer."""
    try:
        request = json.loads(line)
        result = REQUESTS[request["do"]](request)
    except (OSError, LookupError, TypeError, ValueError) as error:
        result = {"error": str(error) or repr(error)}
    return json.dumps(result).encode() + b"\n"


def serve(port: int) -> None:
    """Answer requests until the guest ends."""
    buffer = b""
    while True:
        piece = os.read(port, 65536)
        if not piece:
            time.sleep(UNPLUGGED_SECONDS)
        buffer += piece
        while b"\n" in buffer:
            line, _, buffer = buffer.partition(b"\n")
            os.write(port, answer(line))


if __name__ == "__main__":
    serve(os.open(PORT, os.O_RDWR))
