"""Hosts for tests: network namespaces of this machine, joined by one link that can be cut. Needs root and iproute2."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

COMMAND_SECONDS = 20
_NEW_NETWORK, _NEW_MOUNTS, _SLAVE_TO_ALL, _DETACH = 0x40000000, 0x00020000, 1 << 19 | 1 << 14, 2

_CAPTURE = """
import os, socket, sys
link, path, until = sys.argv[1:]
taken = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
taken.bind((link, 0))
taken.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
taken.settimeout(0.1)
print("ready", flush=True)
with open(path, "wb") as file:
    while True:
        try:
            file.write(taken.recv(1 << 17))
        except socket.timeout:
            if os.path.exists(until):
                break
"""


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

    def slow_down(self, rate: str) -> None:
        """Lets each host send no faster than the rate, as `tc` writes it: "4mbit"."""
        for index, name in enumerate(self._names):
            shaping = ["tbf", "rate", rate, "burst", "16kb", "latency", "200ms"]
            run_ip("netns", "exec", name, "tc", "qdisc", "add", "dev", f"tfs{index}", "root", *shaping)

    def cut(self) -> None:
        """Takes the link between the hosts down."""
        run_ip("-n", self._names[0], "link", "set", "tfs0", "down")

    def answer_nothing_on(self, index: int, ports: str) -> None:
        """Drops what a host sends from these TCP ports ("40000-40010"), as a firewall does that drops what comes to them."""
        run_ip("-n", self._names[index], "rule", "add", "ipproto", "tcp", "sport", ports, "blackhole")

    def capture(self, index: int, path: Path, until: str) -> subprocess.Popen:
        """Starts to write all that crosses the link, as a host sees it, to a file. It ends when the file `until` exists."""
        program = ["ip", "netns", "exec", self._names[index], sys.executable, "-c", _CAPTURE]
        started = subprocess.Popen(
            [*program, f"tfs{index}", str(path), until], stdout=subprocess.PIPE, text=True
        )
        assert started.stdout is not None and started.stdout.readline() == "ready\n"
        return started

    def listening(self, index: int) -> list[str]:
        """Returns the addresses and ports that TCP sockets of a host listen on: "10.213.7.1:22022"."""
        rows = run_ip("netns", "exec", self._names[index], "ss", "-Htln").splitlines()
        ends = (row.split()[3] for row in rows)
        return [re.sub(r"^\[::ffff:(.*)\]", r"\1", end) for end in ends]

    def __enter__(self) -> TwoHosts:
        try:
            for name in self._names:
                run_ip("netns", "add", name)
            first, second = self._names
            run_ip(
                "link", "add", "tfs0", "netns", first, "type", "veth", "peer", "name", "tfs1", "netns", second
            )
            for index, name in enumerate(self._names):
                run_ip("-n", name, "addr", "add", f"{self.addresses[index]}/24", "dev", f"tfs{index}")
                run_ip("-n", name, "link", "set", f"tfs{index}", "up")
                run_ip("-n", name, "link", "set", "lo", "up")
            for index, name in enumerate(self._names):
                wait_for_link(name, f"tfs{index}")
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
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=COMMAND_SECONDS)


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


def wait_for_link(namespace: str, name: str) -> None:
    """Waits until a link is in use: some time after it is set up, and UCX passes over one that is not."""
    end = time.monotonic() + COMMAND_SECONDS
    while "state UP" not in run_ip("-n", namespace, "link", "show", name):
        if time.monotonic() > end:
            raise AssertionError(f"link {name} of {namespace} is not up after {COMMAND_SECONDS} s")
        time.sleep(0.02)


def run_ip(*arguments: str) -> str:
    """Runs the command `ip`, and returns what it has written."""
    return subprocess.run(
        ["ip", *arguments], check=True, capture_output=True, text=True, timeout=COMMAND_SECONDS
    ).stdout
