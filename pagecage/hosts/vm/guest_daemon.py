"""The caretaker: runs in the guest as root and is part of the saved state, so that it is awake the moment the guest is.

Started before the state is saved, it waits at a virtio serial port for one JSON object a line and answers with one:

  {"do": "wake", "unix_seconds": ..., "seed": hexadecimal, "user": ..., "directories": [...]}
      sets the clock, mixes the seed into the random numbers, mounts the data disk, makes the directories
  {"do": "clock", "unix_seconds": ...}
      sets the clock again, now that the way here is warm
  {"do": "release"}
      writes out and unmounts the data disk

Standard library only, and sent to the guest as text. What it imports is what the agent needs a moment later.
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

PORT = Path("/dev/virtio-ports/pagecage")
DISK = Path("/dev/disk/by-id/virtio-pagecage-data")
RANDOM = Path("/dev/random")
DATA = "/data"
DISK_SECONDS = 20.0
UNPLUGGED_SECONDS = 0.05  # a port whose other end is closed reads as empty, over and over
RNDADDENTROPY, RNDRESEEDCRNG = 0x40085203, 0x5207  # random(4)
MS_NOATIME = 1024  # mount(2)
LIBC = ctypes.CDLL(None, use_errno=True)


def add_entropy(seed: bytes) -> None:
    """Mix the bytes in and count them, then make every CPU's generator begin anew from the pool."""
    with RANDOM.open("wb") as device:
        fcntl.ioctl(device, RNDADDENTROPY, struct.pack("ii", 8 * len(seed), len(seed)) + seed)
        fcntl.ioctl(device, RNDRESEEDCRNG)


def mount_data() -> str:
    """Wait for the disk that was just plugged in and mount it; the name that the kernel gave it."""
    deadline = time.monotonic() + DISK_SECONDS
    while not DISK.exists():
        if time.monotonic() > deadline:
            raise OSError("the data disk did not appear")
        time.sleep(0.01)
    device = str(DISK.resolve())
    if LIBC.mount(device.encode(), DATA.encode(), b"ext4", MS_NOATIME, None):
        raise OSError(f"the data disk cannot be mounted: {os.strerror(ctypes.get_errno())}")
    return device


def make_directory(path: str, user: str) -> None:
    """A directory of the measuring user's."""
    account = pwd.getpwnam(user)
    Path(path).mkdir(parents=True, exist_ok=True)
    os.chown(path, account.pw_uid, account.pw_gid)


def wake(order: dict[str, Any]) -> dict[str, Any]:
    """Everything that a restored guest needs, in the order in which it matters."""
    clock(order)
    add_entropy(bytes.fromhex(order["seed"]))
    device = mount_data()
    for path in order["directories"]:
        make_directory(path, order["user"])
    return {"device": device}


def clock(order: dict[str, Any]) -> dict[str, Any]:
    """Set the clock to the time that the order was sent."""
    time.clock_settime(time.CLOCK_REALTIME, order["unix_seconds"])
    return {}


def release(_: dict[str, Any]) -> dict[str, Any]:
    """Write out and unmount; what still has files open there keeps it mounted, and the journal fixes that."""
    os.sync()
    return {"unmounted": LIBC.umount(DATA.encode()) == 0}


ORDERS = {"wake": wake, "clock": clock, "release": release}


def answer(line: bytes) -> bytes:
    """The answer to one order; what goes wrong is told, not raised."""
    try:
        order = json.loads(line)
        told = ORDERS[order["do"]](order)
    except (OSError, LookupError, TypeError, ValueError) as error:
        told = {"error": str(error) or repr(error)}
    return json.dumps(told).encode() + b"\n"


def serve(port: int) -> None:
    """Answer until the guest ends."""
    waiting = b""
    while True:
        piece = os.read(port, 65536)
        if not piece:
            time.sleep(UNPLUGGED_SECONDS)
        waiting += piece
        while b"\n" in waiting:
            line, _, waiting = waiting.partition(b"\n")
            os.write(port, answer(line))


if __name__ == "__main__":
    serve(os.open(PORT, os.O_RDWR))
