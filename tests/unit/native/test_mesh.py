"""Tests that ranks meet over real sockets whatever strangers do, and that who cannot meet is named."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from typing import Any, Dict, Iterator, List, Sequence

import pytest

from tf_strategies.errors import BootstrapError
from tf_strategies.native.endpoints.mesh import TcpMesh, group_key

pytestmark = pytest.mark.any_line

HOST = "127.0.0.1"
KEY = group_key(b"secret", 7)
SECONDS = 20.0


@pytest.fixture
def meshes() -> Iterator[List[TcpMesh]]:
    made = [TcpMesh(HOST) for _ in range(4)]
    yield made
    for mesh in made:
        mesh.close()


def meet(meshes: Sequence[TcpMesh], keys: Dict[int, bytes], seconds: float = SECONDS) -> Dict[int, Any]:
    """Returns what each rank of `keys` got: its sockets by rank, or the text of its error."""
    addresses = [(HOST, mesh.port) for mesh in meshes]
    names = [f"worker {rank} ({HOST}:1)" for rank in range(len(meshes))]
    found: Dict[int, Any] = {}

    def run(rank: int) -> None:
        try:
            numbers = meshes[rank].connect(rank, addresses, names, keys[rank], seconds)
            found[rank] = [None if number < 0 else socket.socket(fileno=number) for number in numbers]
        except BootstrapError as error:
            found[rank] = str(error)

    threads = [threading.Thread(target=run, args=[rank]) for rank in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 10)
    return found


def require_connected(found: Dict[int, Any]) -> None:
    """Each rank has a connection to each other, whose other end is that rank."""
    for rank, sockets in found.items():
        assert isinstance(sockets, list), sockets
        for other, connection in enumerate(sockets):
            if other != rank:
                connection.setblocking(True)
                connection.sendall(bytes([rank, other]))
    for rank, sockets in found.items():
        for other, connection in enumerate(sockets):
            if other != rank:
                connection.settimeout(5)
                assert connection.recv(2) == bytes([other, rank])
                connection.close()


def test_all_ranks_are_connected_with_each_other(meshes: List[TcpMesh]) -> None:
    require_connected(meet(meshes, dict.fromkeys(range(4), KEY)))


def test_strangers_do_not_keep_ranks_from_meeting(meshes: List[TcpMesh]) -> None:
    with contextlib.ExitStack() as strangers:
        for number in range(60):
            stranger = strangers.enter_context(socket.create_connection((HOST, meshes[number % 3].port), 5))
            if number % 3:
                stranger.sendall(os.urandom(20 * number))
        started = time.monotonic()
        require_connected(meet(meshes, dict.fromkeys(range(4), KEY)))
        assert time.monotonic() - started < 5


def test_a_stranger_that_introduces_itself_as_a_rank_takes_no_place(meshes: List[TcpMesh]) -> None:
    with socket.create_connection((HOST, meshes[0].port), 5) as stranger:
        stranger.sendall(b"TFSTCP01" + (2).to_bytes(4, "big") + (0).to_bytes(4, "big") + bytes(32))
        found: Dict[int, Any] = {}
        thread = threading.Thread(target=lambda: found.update(meet(meshes, dict.fromkeys(range(4), KEY))))
        thread.start()
        stranger.settimeout(5)
        answer = stranger.recv(64)
        stranger.sendall(answer[32:])  # the proof of the other end, sent back
        assert stranger.recv(1) == b"", "it is not let in"
        thread.join(SECONDS)
    require_connected(found)


def test_a_rank_with_another_key_is_named_by_both_sides(meshes: List[TcpMesh]) -> None:
    keys = {0: KEY, 1: KEY, 2: group_key(b"another", 7), 3: KEY}
    found = meet(meshes, keys, seconds=1.5)
    assert "it does not know the secret of this cluster" in found[2]
    for rank in (0, 1):
        assert (
            f"no data connection with worker 2 ({HOST}:1) (data port {HOST}:{meshes[2].port})" in found[rank]
        )


def test_the_key_of_another_epoch_is_another_key() -> None:
    assert len({group_key(secret, epoch) for secret in (b"", b"x") for epoch in (1, 2)}) == 4


def test_a_missing_rank_is_named_with_its_port_and_the_remedy(meshes: List[TcpMesh]) -> None:
    meshes[1].close()
    found = meet(meshes, {0: KEY, 2: KEY, 3: KEY}, seconds=1)
    for rank in (2, 3):
        assert (
            f"worker 1 ({HOST}:1) (data port {HOST}:{meshes[1].port}) after 1 s: Connection refused"
            in found[rank]
        )
        assert "firewall" in found[rank] and "TF_STRATEGIES_PORTS" in found[rank]
    assert "it has not connected" in found[0]


def test_it_listens_on_its_address_alone_and_on_the_ports_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.ExitStack() as open_sockets:
        first = open_sockets.enter_context(socket.create_server((HOST, 0))).getsockname()[1]
        monkeypatch.setenv("TF_STRATEGIES_PORTS", f"{first}-{first}")
        with pytest.raises(BootstrapError, match=f"cannot listen for data on {HOST}: Address already in use"):
            TcpMesh(HOST)
        monkeypatch.setenv("TF_STRATEGIES_PORTS", f"{first}-{min(first + 50, 65535)}")
        mesh = open_sockets.enter_context(contextlib.closing(TcpMesh(HOST)))
        assert first < mesh.port <= first + 50
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.2", mesh.port), 5)
    monkeypatch.setenv("TF_STRATEGIES_PORTS", "many")
    with pytest.raises(BootstrapError, match="must be a range of ports"):
        TcpMesh(HOST)
