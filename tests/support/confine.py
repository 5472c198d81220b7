"""Runs a command where a host gives less than usual, as containers do.

python -m tests.support.confine LIMIT[,LIMIT...] command ...

LIMIT: "shm" (64 KiB of /dev/shm), "sysv" (no System V shared memory), "cma" (process_vm_readv is forbidden). Ends with
status 77 when this machine does not allow it (no root, no such feature). Only the command and its children are confined.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

SKIPPED = 77
_NEW_MOUNTS, _NEW_IPC = 0x00020000, 0x08000000
_PRIVATE = 1 << 14 | 1 << 18
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 1  # EPERM
_PROCESS_VM = (310, 311)  # readv and writev on x86-64

_libc = ctypes.CDLL(None, use_errno=True)


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("yes", ctypes.c_uint8),
        ("no", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


def _require(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def shrink_dev_shm() -> None:
    _require(_libc.unshare(_NEW_MOUNTS))
    _require(_libc.mount(None, b"/", None, ctypes.c_ulong(_PRIVATE), None))
    _require(_libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", ctypes.c_ulong(0), b"size=64k"))


def forbid_system_v() -> None:
    _require(_libc.unshare(_NEW_IPC))
    Path("/proc/sys/kernel/shmmax").write_text("1")


def forbid_process_vm() -> None:
    instructions = (_Instruction * 5)(
        (_LOAD, 0, 0, 0),
        (_EQUAL, 1, 0, _PROCESS_VM[0]),
        (_EQUAL, 0, 1, _PROCESS_VM[1]),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    )
    program = _Program(len(instructions), instructions)
    _require(_libc.prctl(_NO_NEW_PRIVILEGES, ctypes.c_ulong(1), 0, 0, 0))
    _require(_libc.prctl(_SET_SECCOMP, ctypes.c_ulong(_FILTER), ctypes.byref(program), 0, 0))


_LIMITS = {"shm": shrink_dev_shm, "sysv": forbid_system_v, "cma": forbid_process_vm}


def main() -> None:
    limits, command = sys.argv[1].split(","), sys.argv[2:]
    try:
        for name, apply in _LIMITS.items():
            if name in limits:
                apply()
    except OSError as error:
        print(f"cannot confine {limits}: {error}", flush=True)
        sys.exit(SKIPPED)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
