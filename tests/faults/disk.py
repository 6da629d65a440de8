"""A small file system of its own for a test, so that it can be full without anybody else noticing."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_CLONE_NEWNS, _MS_REC, _MS_PRIVATE, _MNT_DETACH = 0x00020000, 0x4000, 1 << 18, 2
SIZE = "48m"


@cache
def can_mount() -> bool:
    """Give this process mounts of its own, which end with it; tell whether it may."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0 or libc.unshare(_CLONE_NEWNS) != 0:
        return False
    return libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) == 0


@contextmanager
def small_disk(directory: Path) -> Iterator[bool]:
    """Mount a small file system at a directory while the block runs; yield whether that was possible."""
    directory.mkdir(exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"size={SIZE}".encode()
    mounted = can_mount() and libc.mount(b"tmpfs", str(directory).encode(), b"tmpfs", 0, options) == 0
    try:
        yield mounted
    finally:
        if mounted:
            libc.umount2(str(directory).encode(), _MNT_DETACH)
