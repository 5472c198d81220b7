"""Checks whether tasks of one host may read one another's memory, as their shared-memory transport does."""

from __future__ import annotations

import ctypes
import os
import secrets

__all__ = ["SAMPLE_BYTES", "Sample", "read_sample"]

SAMPLE_BYTES = 16
_SET_PTRACER, _ANY = 0x59616D61, (1 << 64) - 1


class _Part(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Sample:
    """Random bytes in the memory of this process, for others to read.

    Attributes:
        address: where they are.
        content: in hexadecimal digits.
    """

    def __init__(self) -> None:
        # As UCX does in the job: otherwise Yama (kernel.yama.ptrace_scope=1) lets no sibling read.
        ctypes.CDLL(None).prctl(_SET_PTRACER, ctypes.c_ulong(_ANY), 0, 0, 0)
        self._bytes = ctypes.create_string_buffer(secrets.token_bytes(SAMPLE_BYTES), SAMPLE_BYTES)
        self.address = ctypes.addressof(self._bytes)
        self.content = self._bytes.raw.hex()


def read_sample(pid: int, address: int, content: str) -> str:
    """Returns "ok" if this process can read the sample of another, or why not.

    Args:
        pid: of the other process.
        address, content: of its sample.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    mine = ctypes.create_string_buffer(SAMPLE_BYTES)
    local = _Part(ctypes.addressof(mine), SAMPLE_BYTES)
    remote = _Part(address, SAMPLE_BYTES)
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    count = libc.process_vm_readv(
        ctypes.c_int(pid),
        ctypes.byref(local),
        ctypes.c_ulong(1),
        ctypes.byref(remote),
        ctypes.c_ulong(1),
        ctypes.c_ulong(0),
    )
    if count != SAMPLE_BYTES:
        return f"process_vm_readv: {os.strerror(ctypes.get_errno()).lower()}"
    return "ok" if mine.raw.hex() == content else "process_vm_readv reads other bytes than are there"
