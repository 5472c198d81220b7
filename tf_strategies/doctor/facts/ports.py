"""Finds which process listens on a port of this host."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["holder_of"]

_LISTENS = "0A"  # the state in /proc/net/tcp


def holder_of(port: int) -> str:
    """Returns the process that listens on a port, such as "process 123 (python train.py)".

    Only the program and its script are named, because other arguments may be secret.
    """
    wanted = {f"socket:[{inode}]" for inode in _inodes(port)}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(str(each.readlink()) in wanted for each in (folder / "fd").iterdir()):
                return f"process {folder.name} ({_program(folder)})"
    return (
        "a process that cannot be seen here (of another user or container)"
        if wanted
        else "a process that has ended"
    )


def _inodes(port: int) -> set[str]:
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path("/proc/self/net", table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(fields[9])
    return found


def _program(folder: Path) -> str:
    words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
    script = next((word for word in words[1:] if word and not word.startswith("-")), "")
    return f"{Path(words[0]).name} {script}".strip()[:120]
