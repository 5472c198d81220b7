"""Opens the ports of a task, as the job would: its address of TF_CONFIG, and a data port."""

from __future__ import annotations

import dataclasses
import errno
import os
import socket
from typing import List

from tf_strategies.addresses import join_address, split_address
from tf_strategies.doctor.facts.names import places_of
from tf_strategies.doctor.facts.ports import holder_of
from tf_strategies.doctor.link import SMALL_SEGMENT
from tf_strategies.doctor.records import Resolution
from tf_strategies.errors import BootstrapError
from tf_strategies.native.endpoints.mesh import PORTS, listen, ports_of

__all__ = ["Ports", "open_ports"]

_BACKLOG = 128


@dataclasses.dataclass
class Ports:
    """The ports that a task listens on.

    Attributes:
        control: sockets at the address of TF_CONFIG.
        data: the socket for data; None if there is none.
        listens, text: as `listens` and `listens_text` of `records.Report`.
        data_text: why there is no data port; "" if there is one.
    """

    control: List[socket.socket]
    data: socket.socket | None
    listens: str
    text: str
    data_text: str

    @property
    def data_port(self) -> int:
        """The number of the data port, or 0."""
        return 0 if self.data is None else int(self.data.getsockname()[1])

    def close(self) -> None:
        """Stops listening."""
        for each in [*self.control, *([] if self.data is None else [self.data])]:
            each.close()


def open_ports(address: str, name: Resolution) -> Ports:
    """Listens at an address of TF_CONFIG, and for data on the same host.

    Args:
        address: "host:port"; "" for a task that has none.
        name: what its host resolves to.
    """
    if not address:
        return Ports([], None, "ok", "", "")
    host, port = split_address(address)
    if name.error:
        return Ports([], None, "unresolved", name.error, name.error)
    control, kind, text = _control(host, port)
    try:
        data = listen(host, ports_of(os.environ.get(PORTS, "0-0")))
        data.setblocking(False)
    except (OSError, BootstrapError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return Ports(control, None, kind, text, str(reason or error).lower()[:500])
    return Ports(control, data, kind, text, "")


def _control(host: str, port: int) -> tuple[List[socket.socket], str, str]:
    """Returns sockets that listen on all addresses of a host that this machine has, and why there are none."""
    opened: List[socket.socket] = []
    kind, text = "not_here", f"{host} is no address of this machine"
    for family, place in places_of(host, port):
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SMALL_SEGMENT)
            listener.setblocking(False)
            listener.bind(place)
            listener.listen(_BACKLOG)
            opened.append(listener)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                kind, text = "taken", f"{join_address(str(place[0]), port)} is taken by {holder_of(port)}"
            elif error.errno != errno.EADDRNOTAVAIL:
                kind, text = (
                    "other",
                    f"{join_address(str(place[0]), port)}: {(error.strerror or str(error)).lower()}",
                )
    if kind == "taken" or not opened:
        for each in opened:
            each.close()
        return [], kind, text
    return opened, "ok", ""
