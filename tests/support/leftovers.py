"""What processes may leave behind on a machine: other processes, shared memory, listening ports.

Example:
    with ProcessGroup(tmp_path) as group, nothing_left(group, ports.ports):
        ...  # start workers, and see them end
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from tests.support.processes import ProcessGroup, wait_until

_SHARED = Path("/dev/shm")
_SECONDS = 8.0
_LISTENING = "0A"  # the state in /proc/net/tcp


@contextlib.contextmanager
def nothing_left(group: ProcessGroup, ports: Collection[int] = ()) -> Iterator[None]:
    """Asserts, when the block has ended well, that all that was started in it is gone.

    Within a few seconds no process of the group's sessions may live, none of `ports` be listened on, and no new file
    in /dev/shm or System V segment be there that nobody uses. Other jobs of the machine may come and go meanwhile.
    """
    files, segments = set(_files()), set(_segments())
    yield

    def left() -> list[str]:
        processes = [f"process {pid}" for pid in _of_sessions(group.pids)]
        listening = [f"port {port}" for port in ports if port in _listening()]
        shared = [f"/dev/shm/{name}" for name in set(_files()) - files if not _is_mapped(name)]
        unused = [f"System V segment {key}" for key in set(_segments()) - segments]
        return [*processes, *listening, *shared, *unused]

    with contextlib.suppress(AssertionError):
        wait_until(lambda: not left(), _SECONDS, "the end of what was started")
    assert not left(), f"left behind: {', '.join(left())}"


def _of_sessions(leaders: Collection[int]) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if fields[0] not in "ZX" and int(fields[3]) in leaders:
                yield int(folder.name)


def _listening() -> set[int]:
    ports = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def _files() -> Iterator[str]:
    yield from (entry.name for entry in os.scandir(_SHARED))


def _is_mapped(name: str) -> bool:
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if f"{_SHARED}/{name}" in maps.read_text():
                return True
    return False


def _segments() -> Iterator[int]:
    """The System V segments to which nobody is attached and whose maker has ended."""
    for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[6] == "0" and not Path(f"/proc/{fields[4]}").exists():
            yield int(fields[1])
