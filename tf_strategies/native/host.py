"""Collects facts about this host that a transport needs: its identity, its interfaces and its transports."""

from __future__ import annotations

import array
import fcntl
import itertools
import os
import socket
import struct
import sys
from pathlib import Path

_SIOCGIFCONF = 0x8912
_IFREQ_BYTES = 40


def identity() -> str:
    """Returns a text that is equal for two processes exactly when they can share memory.

    They need the same kernel, and the same network, IPC and PID namespaces: a transport in shared memory looks up the other
    process by its id.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    namespaces = [str(Path(f"/proc/self/ns/{name}").readlink()) for name in ("net", "ipc", "pid")]
    return " ".join([boot, *namespaces])


def network_of(identity_: str) -> str:
    """Returns the part of an `identity` that processes with the same network have in common."""
    return " ".join(identity_.split()[:2])


def ranks_per_host(hosts: list[str]) -> int:
    """Returns the number of ranks on each host, or 1 if hosts differ in it or ranks are not listed host by host.

    Args:
        hosts: the host of each rank.

    Example:
        >>> ranks_per_host(["a", "a", "b", "b"]), ranks_per_host(["a", "b", "a", "b"]), ranks_per_host(["a", "a", "b"])
        (2, 1, 1)
    """
    runs = [len(list(ranks)) for _, ranks in itertools.groupby(hosts)]
    even = len(set(runs)) == 1 and len(runs) == len(set(hosts))
    return runs[0] if even else 1


def interface_of(host: str) -> str | None:
    """Returns the network interface of this machine that has the address of a host, or None if there is none.

    Args:
        host: a host name or an IP address.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    mine = {**_ipv4_interfaces(), **_ipv6_interfaces()}
    for family, _, _, _, address in found:
        packed = socket.inet_pton(family, str(address[0]).partition("%")[0])
        if packed in mine:
            return mine[packed]
        if family == socket.AF_INET and packed[0] == 127:
            return "lo"
    return None


def _ipv4_interfaces() -> dict[bytes, str]:
    buffer = array.array("B", bytes(_IFREQ_BYTES * 256))
    address, size = buffer.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        request = fcntl.ioctl(handle, _SIOCGIFCONF, struct.pack("iL", size, address))
    used = struct.unpack("iL", request)[0]
    interfaces = {}
    for begin in range(0, used, _IFREQ_BYTES):
        name = bytes(buffer[begin : begin + 16]).split(b"\0")[0].decode().partition(":")[0]
        interfaces[bytes(buffer[begin + 20 : begin + 24])] = name
    return interfaces


def _ipv6_interfaces() -> dict[bytes, str]:
    table = Path("/proc/net/if_inet6")
    if not table.exists():
        return {}
    rows = (line.split() for line in table.read_text(encoding="ascii").splitlines())
    return {bytes.fromhex(row[0]): row[-1] for row in rows}


def net_devices(host: str) -> str:
    """Returns the value of UCX_NET_DEVICES that restricts UCX to the interface of TF_CONFIG, or "" for all interfaces.

    It is "" if the user has set UCX_NET_DEVICES, if the host has RDMA devices (which are not interfaces), or
    if no local interface has the address (it may be translated in the network).

    Args:
        host: the host in this task's address of TF_CONFIG.
    """
    if "UCX_NET_DEVICES" in os.environ or any(Path("/sys/class").glob("infiniband/*")):
        return ""
    return interface_of(host) or ""


def transports(choice: str) -> tuple[str, ...]:
    """Returns the values of UCX_TLS for a transport of UCX, in the order to try them.

    "" leaves the choice to UCX and its environment. If one kind of shared memory is forbidden, as in some
    containers, UCX does not open at all. The other values are then tried, unless the user has set UCX_TLS.

    Args:
        choice: "shared_memory", "tcp", or "auto" (between workers and servers) and "ucx" (between workers) for all transports.
    """
    if choice == "tcp":
        return ("tcp,self",)
    if choice == "shared_memory":
        return ("sm,self",)
    return ("",) if "UCX_TLS" in os.environ else ("", "^sysv", "tcp,self")


if sys.platform != "linux":
    raise ImportError(f"tf_strategies runs on Linux; this is {sys.platform}")
