"""The TCP sockets of this process, as the kernel lists them."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from pathlib import Path

_ESTABLISHED, _LISTENS = 0x01, 0x0A


@dataclasses.dataclass(frozen=True)
class TcpSocket:
    """One socket.

    Attributes:
        host, port: of this end.
        peer: the host of the other end; "0.0.0.0" or "::" where there is none.
    """

    host: str
    port: int
    peer: str
    listens: bool
    connected: bool


def own_tcp_sockets() -> list[TcpSocket]:
    """Returns the TCP sockets that this process has open, for IPv4 and IPv6."""
    own = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found = re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink()))
        except FileNotFoundError:  # the one that lists the folder
            continue
        if found:
            own.add(found[1])
    sockets = []
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        if not Path(table).exists():
            continue
        for row in Path(table).read_text(encoding="ascii").splitlines()[1:]:
            fields = row.split()
            if fields[9] in own:
                state = int(fields[3], 16)
                host, port = fields[1].split(":")
                sockets.append(
                    TcpSocket(
                        _host(host),
                        int(port, 16),
                        _host(fields[2].split(":")[0]),
                        state == _LISTENS,
                        state == _ESTABLISHED,
                    )
                )
    return sockets


def _host(text: str) -> str:
    """Returns an address in words of the host's byte order; one of IPv4 that is written as one of IPv6 as what it is."""
    words = bytes.fromhex(text)
    packed = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
    address = ipaddress.ip_address(packed)
    return str(getattr(address, "ipv4_mapped", None) or address)
