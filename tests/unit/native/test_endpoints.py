"""Tests what a worker opens and connects for each transport, over real shared memory and sockets of one process."""

from __future__ import annotations

import contextlib
import logging
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence

import pytest

from tests.support import certificates
from tests.support.our_logs import our_messages
from tests.support.tcp_sockets import own_tcp_sockets
from tf_strategies.errors import BootstrapError
from tf_strategies.native import core
from tf_strategies.native.endpoints import Endpoint, Settings, open_endpoint
from tf_strategies.native.endpoints.by_host import ByHostEndpoint
from tf_strategies.native.endpoints.tcp import TcpEndpoint
from tf_strategies.native.endpoints.ucx import UcxEndpoint

pytestmark = pytest.mark.any_line

HOST = "127.0.0.1"
ELSEWHERE = "192.0.2.200"  # an address for documentation, which no machine has
SECONDS = 20.0


@pytest.fixture(autouse=True)
def without_ucx_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UCX_TLS", raising=False)


@contextlib.contextmanager
def opened(transports: Sequence[str], hosts: Sequence[str] = (), tls: str = "") -> Iterator[List[Endpoint]]:
    hosts = hosts or [HOST] * len(transports)
    with contextlib.ExitStack() as stack:
        endpoints = []
        for rank, transport in enumerate(transports):
            settings = Settings(names(len(hosts)), hosts, rank, SECONDS, tls_folder=tls)
            endpoints.append(open_endpoint(transport, settings))
            stack.callback(endpoints[-1].close)
        yield endpoints


def names(size: int) -> List[str]:
    return [f"worker {rank}" for rank in range(size)]


def connect(endpoints: Sequence[Endpoint], host_of: str) -> Dict[int, Any]:
    """Returns the text of each rank's error, or what its communicator calls its transport, after all have connected."""
    addresses = [endpoint.address() for endpoint in endpoints]
    found: Dict[int, Any] = {}

    def run(rank: int) -> None:
        try:
            same_host = [each == host_of[rank] for each in host_of]
            found[rank] = endpoints[rank].connect(addresses, same_host, 7)
        except BootstrapError as error:
            found[rank] = str(error)

    threads = [threading.Thread(target=run, args=[rank]) for rank in range(len(endpoints))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS + 10)
    return {rank: transport_of(each) if isinstance(each, int) else each for rank, each in found.items()}


def transport_of(transport: int) -> str:
    communicator = core.open_communicator(
        transport,
        ranks_per_host=1,
        ranks_here=1,
        by_network=True,
        peer_names=[],
        algorithm="auto",
        chunk_bytes=None,
        timeout=SECONDS,
        verdict_timeout=SECONDS,
    )
    try:
        return str(core.stats(communicator)["transport"])
    finally:
        core.close(communicator)


def listening() -> set:
    return {(each.host, each.port) for each in own_tcp_sockets() if each.listens}


def test_each_transport_has_its_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"auto": ByHostEndpoint, "tcp": TcpEndpoint, "ucx": UcxEndpoint, "shared_memory": UcxEndpoint}
    with opened(list(kinds)) as endpoints:
        assert {name: type(endpoint) for name, endpoint in zip(kinds, endpoints)} == kinds
    monkeypatch.setenv("UCX_TLS", "tcp,self")
    with opened(["auto", "tcp"]) as (chosen, ours):
        assert isinstance(chosen, UcxEndpoint), "who sets UCX_TLS wants UCX"
        assert isinstance(ours, TcpEndpoint), "tcp is TCP of our own whatever the environment says"


def test_one_host_shares_memory_and_listens_on_nothing() -> None:
    before = listening()
    with opened(["auto"] * 2) as endpoints:
        ports = {(HOST, endpoint.address()["port"]) for endpoint in endpoints}
        assert listening() - before == ports, "UCX has no TCP, and ours is on the address of TF_CONFIG alone"
        assert connect(endpoints, "aa") == dict.fromkeys(range(2), "none yet")
        assert listening() == before


def test_several_hosts_are_connected_by_tcp_and_nobody_listens_afterwards() -> None:
    before = listening()
    with opened(["auto"] * 3) as endpoints:
        assert connect(endpoints, "aab") == dict.fromkeys(range(3), "tcp")
        assert listening() == before


def test_workers_of_one_host_that_share_no_memory_are_connected_by_tcp() -> None:
    with opened(["auto"] * 3) as endpoints:
        endpoints[1].memory = ""
        endpoints[2].memory = "another kind"
        assert connect(endpoints, "aaa") == dict.fromkeys(range(3), "tcp")


def test_an_address_of_another_machine_is_an_error_between_hosts_alone() -> None:
    with opened(["auto"] * 2, [ELSEWHERE, HOST]) as endpoints:
        assert connect(endpoints, "aa") == dict.fromkeys(range(2), "none yet")
    with opened(["auto"] * 2, [ELSEWHERE, HOST]) as endpoints:
        found = connect(endpoints, "ab")
    for rank in range(2):
        assert f"worker 0 cannot listen for data on {ELSEWHERE}: " in found[rank]
        assert "transport='ucx'" in found[rank]


def test_a_worker_alone_needs_neither_memory_nor_an_address() -> None:
    with opened(["auto"], [ELSEWHERE]) as endpoints:
        endpoints[0].memory = ""
        assert connect(endpoints, "a") == {0: "tcp"}


def test_workers_that_differ_in_ucx_tls_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(["auto"], [HOST, HOST]) as first:
        monkeypatch.setenv("UCX_TLS", "tcp,self")
        with opened(["auto"], [HOST, HOST]) as second:
            addresses = [first[0].address(), second[0].address()]
            for endpoint in (first[0], second[0]):
                with pytest.raises(BootstrapError, match="set UCX_TLS on all workers, or on none"):
                    endpoint.connect(addresses, [True, False], 7)


@pytest.mark.parametrize(
    ("transport", "hosts", "warnings"), [("auto", "ab", 2), ("auto", "aa", 0), ("ucx", "ab", 0)]
)
def test_ucx_between_hosts_is_warned_of_where_the_environment_chose_it(
    transport: str,
    hosts: str,
    warnings: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("UCX_TLS", "tcp,self")
    caplog.set_level(logging.WARNING, "tf_strategies")
    with opened([transport] * 2) as endpoints:
        connect(endpoints, hosts)
    assert len(our_messages(caplog)) == warnings
    for message in our_messages(caplog):
        assert "UCX_TLS=tcp,self is set, so UCX connects the hosts" in message


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> str:
    return certificates.make(tmp_path_factory.mktemp("tls") / "made")


@pytest.mark.parametrize(
    ("transport", "hosts", "found"),
    [("tcp", "aa", "tcp (TLS 1.3)"), ("auto", "aab", "tcp (TLS 1.3)"), ("auto", "aa", "none yet")],
)
def test_tls_is_for_what_leaves_the_memory_of_a_host(
    transport: str, hosts: str, found: str, tls: str
) -> None:
    with opened([transport] * len(hosts), tls=tls) as endpoints:
        assert connect(endpoints, hosts) == dict.fromkeys(range(len(hosts)), found)


def test_ucx_between_hosts_is_refused_with_tls(tls: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_TLS", "tcp,self")
    for transport in ("ucx", "auto"):
        with opened([transport] * 2, tls=tls) as endpoints:
            for text in connect(endpoints, "ab").values():
                assert (
                    "TF_STRATEGIES_TLS is set, and UCX, which cannot encrypt, would connect the hosts" in text
                )
                assert "transport='tcp'" in text


def test_certificates_that_the_core_cannot_read_are_named(tmp_path: Path) -> None:
    with opened(["tcp"] * 2, tls=str(tmp_path)) as endpoints:
        for text in connect(endpoints, "aa").values():
            assert f"{tmp_path}/ca.crt cannot be used for TLS" in text
