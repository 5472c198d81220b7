"""Hosts for tests: network namespaces of this machine, joined by one link that can be cut. Needs root and iproute2."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import time
from types import TracebackType

_COMMAND_SECONDS = 20
_NEW_NETWORK, _NEW_MOUNTS, _SLAVE_TO_ALL, _DETACH = 0x40000000, 0x00020000, 1 << 19 | 1 << 14, 2


def missing() -> str:
    """Why namespaces cannot be made here; "" when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the command `ip` (Debian: iproute2)"
    try:
        with TwoHosts():
            return ""
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made here: {error.stderr.strip()}"


class TwoHosts:
    """Two hosts, 10.213.7.1 and 10.213.7.2, that reach only each other. Gone when the block ends.

    Attributes:
        addresses: of host 0 and host 1.
    """

    addresses = ("10.213.7.1", "10.213.7.2")

    def __init__(self) -> None:
        self._names = [f"tfs-{os.getpid()}-{index}" for index in range(2)]

    def name(self, index: int) -> str:
        """Returns the name of a host's namespace, for `enter`."""
        return self._names[index]

    def cut(self) -> None:
        """Takes the link between the hosts down."""
        _run("-n", self._names[0], "link", "set", "tfs0", "down")

    def answer_nothing_on(self, index: int, ports: str) -> None:
        """Drops what a host sends from these TCP ports ("40000-40010"), as a firewall does that drops what comes to them."""
        _run("-n", self._names[index], "rule", "add", "ipproto", "tcp", "sport", ports, "blackhole")

    def listening(self, index: int) -> list[str]:
        """Returns the addresses and ports that TCP sockets of a host listen on: "10.213.7.1:22022"."""
        rows = _run("netns", "exec", self._names[index], "ss", "-Htln").splitlines()
        ends = (row.split()[3] for row in rows)
        return [re.sub(r"^\[::ffff:(.*)\]", r"\1", end) for end in ends]

    def __enter__(self) -> TwoHosts:
        try:
            for name in self._names:
                _run("netns", "add", name)
            first, second = self._names
            _run(
                "link", "add", "tfs0", "netns", first, "type", "veth", "peer", "name", "tfs1", "netns", second
            )
            for index, name in enumerate(self._names):
                _run("-n", name, "addr", "add", f"{self.addresses[index]}/24", "dev", f"tfs{index}")
                _run("-n", name, "link", "set", f"tfs{index}", "up")
                _run("-n", name, "link", "set", "lo", "up")
            for index, name in enumerate(self._names):
                _wait_for_link(name, f"tfs{index}")
        except subprocess.CalledProcessError:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=_COMMAND_SECONDS)


def enter(name: str) -> None:
    """Moves this process, which has one thread, to a namespace, as `ip netns exec` does: with the /sys of its interfaces."""
    libc = ctypes.CDLL(None, use_errno=True)

    def require(result: int) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"network namespace {name}: {os.strerror(number)}")

    handle = os.open(f"/run/netns/{name}", os.O_RDONLY)
    require(libc.setns(handle, _NEW_NETWORK))
    os.close(handle)
    require(libc.unshare(_NEW_MOUNTS))
    require(libc.mount(b"", b"/", b"none", ctypes.c_ulong(_SLAVE_TO_ALL), None))
    libc.umount2(b"/sys", _DETACH)
    require(libc.mount(name.encode(), b"/sys", b"sysfs", ctypes.c_ulong(0), None))


def _wait_for_link(namespace: str, name: str) -> None:
    """Waits until a link is in use: some time after it is set up, and UCX passes over one that is not."""
    end = time.monotonic() + _COMMAND_SECONDS
    while "state UP" not in _run("-n", namespace, "link", "show", name):
        if time.monotonic() > end:
            raise AssertionError(f"link {name} of {namespace} is not up after {_COMMAND_SECONDS} s")
        time.sleep(0.02)


def _run(*arguments: str) -> str:
    return subprocess.run(
        ["ip", *arguments], check=True, capture_output=True, text=True, timeout=_COMMAND_SECONDS
    ).stdout
