"""Hosts for tests: network namespaces of this machine, joined by one link that can be cut. Needs root and iproute2."""

from __future__ import annotations

import os
import shutil
import subprocess
from types import TracebackType

_COMMAND_SECONDS = 20


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

    def command(self, index: int, *argv: str) -> list[str]:
        """The command line that runs `argv` on a host."""
        return ["ip", "netns", "exec", self._names[index], *argv]

    def cut(self) -> None:
        """Takes the link between the hosts down."""
        _run("-n", self._names[0], "link", "set", "tfs0", "down")

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


def _run(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=_COMMAND_SECONDS)
