"""Several hosts on one switch: network namespaces joined by a bridge. Needs what `namespaces.missing` looks for."""

from __future__ import annotations

import os
import subprocess
from types import TracebackType

from tests.support.namespaces import COMMAND_SECONDS, run_ip, wait_for_link

__all__ = ["Switch"]

_NETWORK = "10.213.9"


class Switch:
    """Hosts that reach only each other. Gone when the block ends.

    Args:
        count: of hosts.

    Attributes:
        addresses: of each host.
    """

    def __init__(self, count: int) -> None:
        self.addresses = tuple(f"{_NETWORK}.{index + 1}" for index in range(count))
        self._names = [f"tfsw-{os.getpid()}-{index}" for index in range(count)]
        self._switch = f"tfsw-{os.getpid()}-switch"

    def name(self, index: int) -> str:
        """Returns the name of a host's namespace."""
        return self._names[index]

    def inside(self, index: int, *command: str) -> list[str]:
        """Returns the command that runs a command on a host."""
        return ["ip", "netns", "exec", self._names[index], *command]

    def drop_from(self, index: int, ports: str) -> None:
        """Drops what a host sends from these TCP ports ("40000-40010"), as a firewall does that drops what comes to them."""
        run_ip("-n", self._names[index], "rule", "add", "ipproto", "tcp", "sport", ports, "blackhole")

    def drop_between(self, index: int, other: int) -> None:
        """Drops everything that a host sends to another."""
        run_ip("-n", self._names[index], "route", "add", "blackhole", f"{self.addresses[other]}/32")

    def reject_to(self, index: int, ports: str) -> None:
        """Lets a host refuse to connect to these TCP ports of others, as a firewall that rejects does."""
        run_ip("-n", self._names[index], "rule", "add", "ipproto", "tcp", "dport", ports, "prohibit")

    def set_mtu(self, index: int, mtu: int) -> None:
        """Sets the MTU of a host's interface. The switch passes 1500 bytes, and drops the rest without a word.

        The host sends each packet by itself then, as it is on a real wire.
        """
        run_ip("-n", self._names[index], "link", "set", f"tfs{index}", "mtu", str(mtu), "gso_max_segs", "1")

    def cut(self, index: int) -> None:
        """Takes a host off the switch, in both directions."""
        run_ip("-n", self._switch, "link", "set", f"port{index}", "nomaster")

    def mute(self, index: int) -> None:
        """Drops everything that a host sends. It still receives."""
        run_ip("-n", self._names[index], "rule", "add", "from", self.addresses[index], "blackhole")

    def mend(self, index: int) -> None:
        """Undoes `cut` or `mute`."""
        run_ip("-n", self._switch, "link", "set", f"port{index}", "master", "switch")
        subprocess.run(
            ["ip", "-n", self._names[index], "rule", "del", "from", self.addresses[index], "blackhole"],
            capture_output=True,
            timeout=COMMAND_SECONDS,
        )

    def limit(self, index: int, rate: str) -> None:
        """Lets a host send no faster than a rate such as "100mbit"."""
        self._shape(index, f"tfs{index}", rate)

    def slow_down(self, one: int, other: int, rate: str) -> None:
        """Gives two hosts a slow wire of their own, with a rate such as "8mbit"."""
        first, second = self._names[one], self._names[other]
        run_ip(
            "link", "add", "slow0", "netns", first, "type", "veth", "peer", "name", "slow1", "netns", second
        )
        for index, to, link in ((one, other, "slow0"), (other, one, "slow1")):
            run_ip("-n", self._names[index], "link", "set", link, "up")
            run_ip(
                "-n",
                self._names[index],
                "route",
                "add",
                f"{self.addresses[to]}/32",
                "dev",
                link,
                "src",
                self.addresses[index],
            )
            self._shape(index, link, rate)

    def _shape(self, index: int, link: str, rate: str) -> None:
        shape = ["root", "tbf", "rate", rate, "burst", "32kb", "latency", "100ms"]
        command = self.inside(index, "tc", "qdisc", "add", "dev", link, *shape)
        subprocess.run(command, check=True, capture_output=True, timeout=COMMAND_SECONDS)

    def __enter__(self) -> Switch:
        try:
            run_ip("netns", "add", self._switch)
            run_ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
            run_ip("-n", self._switch, "link", "set", "switch", "up")
            for index, name in enumerate(self._names):
                self._plug_in(index, name)
            for index, name in enumerate(self._names):
                wait_for_link(name, f"tfs{index}")
        except subprocess.CalledProcessError:
            self._remove()
            raise
        return self

    def _plug_in(self, index: int, name: str) -> None:
        link, port = f"tfs{index}", f"port{index}"
        run_ip("netns", "add", name)
        run_ip(
            "link", "add", link, "netns", name, "type", "veth", "peer", "name", port, "netns", self._switch
        )
        run_ip("-n", self._switch, "link", "set", port, "master", "switch", "up")
        run_ip("-n", name, "addr", "add", f"{self.addresses[index]}/24", "dev", link)
        run_ip("-n", name, "link", "set", link, "up")
        run_ip("-n", name, "link", "set", "lo", "up")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        for name in [*self._names, self._switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=COMMAND_SECONDS)
