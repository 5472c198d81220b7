"""Workers on two hosts: network namespaces, joined by one link."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.cluster.collective.failing_fit_worker import HEARTBEAT_SECONDS
from tests.cluster.collective.hierarchical_worker import SHAPES
from tests.cluster.compression.compressed_traffic_worker import STEPS
from tests.support import certificates
from tests.support.namespaces import TwoHosts, missing
from tests.support.processes import ProcessGroup, tf_config, wait_until
from tf_strategies.tls import TLS_FOLDER

_PORT = 22022
pytestmark = pytest.mark.any_line
_START_SECONDS = 120
_NOTICE_SECONDS = 5
_SMALL_MESSAGES = 2000  # in a step: heartbeats, acknowledgements


@pytest.fixture
def hosts() -> Iterator[TwoHosts]:
    reason = missing()
    if reason:
        pytest.skip(reason)
    with TwoHosts() as made:
        yield made


def start(
    group: ProcessGroup,
    hosts: TwoHosts,
    module: str,
    *arguments: str,
    on_each: int = 1,
    data_ports: str = "0-0",
    only: Sequence[int] | None = None,
) -> None:
    """Starts `on_each` workers on each host, or `only` some of them."""
    addresses = [f"{address}:{_PORT + local}" for address in hosts.addresses for local in range(on_each)]
    for index in range(len(addresses)) if only is None else only:
        group.start_preloaded(
            f"worker{index}",
            module,
            *arguments,
            env={
                "TF_CONFIG": tf_config({"worker": addresses}, "worker", index),
                "TF_STRATEGIES_PORTS": data_ports,
            },
            namespace=hosts.name(index // on_each),
        )


@pytest.mark.waits
def test_collectives_in_different_orders_may_take_long_on_a_slow_link(
    hosts: TwoHosts, tmp_path: Path
) -> None:
    hosts.slow_down("4mbit")
    with ProcessGroup(tmp_path) as group:
        start(group, hosts, "tests.cluster.collective.crossed_worker", str(1 << 19))
        group.require_success(_START_SECONDS)
        for index in range(2):
            seconds = float(re.search("^seconds (.*)$", group[f"worker{index}"].log(), re.M)[1])
            assert seconds > 6  # all workers have waited longer in different collectives than an error takes


@pytest.mark.quick
@pytest.mark.parametrize(
    ("transport", "wire"), [("auto", "tcp\n"), ("tcp", "tcp\n"), ("ucx", "tcp (between hosts)\n")]
)
def test_collectives_between_hosts_go_over_tcp(
    transport: str, wire: str, hosts: TwoHosts, tmp_path: Path
) -> None:
    with ProcessGroup(tmp_path) as group:
        start(group, hosts, "tests.cluster.native.native_ops_worker", transport)
        assert set(group.wait_all(timeout=180).values()) == {0}
        for index in range(2):
            assert wire in group[f"worker{index}"].log().partition("transport: ")[2]


@pytest.mark.quick
def test_workers_of_a_host_share_memory_and_those_of_others_are_reached_by_tcp_of_our_own(
    hosts: TwoHosts, tmp_path: Path
) -> None:
    """UCX has no TCP socket at all, nobody listens for data any more, and nothing leaves the addresses of TF_CONFIG."""
    with ProcessGroup(tmp_path) as group:
        start(group, hosts, "tests.cluster.collective.wire_worker", on_each=2)
        assert set(group.wait_all(timeout=120).values()) == {0}
        for index in range(4):
            found = dict(re.findall(r"^(transport|sockets) (.*)$", group[f"worker{index}"].log(), re.M))
            assert re.fullmatch(r"[+a-z]*(sysv|posix)[+a-z]* \(same host\), tcp", found["transport"])
            sockets = json.loads(found["sockets"])
            mine, theirs = hosts.addresses[index // 2], hosts.addresses[1 - index // 2]
            assert {each["host"] for each in sockets} == {mine}
            assert [each["port"] for each in sockets if each["listens"]] == [_PORT] * (index == 0)
            data = [each for each in sockets if each["connected"] and each["peer"] == theirs]
            control = 2 if index == 0 else int(index >= 2)
            assert len(data) - control == 2, "one connection to each worker of the other host"


@pytest.mark.quick
@pytest.mark.parametrize("tls", [False, True])
def test_with_tls_nothing_between_hosts_can_be_read(
    tls: bool, hosts: TwoHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TLS_FOLDER, certificates.make(tmp_path / "tls") if tls else "")
    crossed, done = tmp_path / "crossed", tmp_path / "done"
    capture = hosts.capture(1, crossed, str(done))
    with ProcessGroup(tmp_path) as group:
        start(group, hosts, "tests.cluster.collective.wire_worker")
        assert set(group.wait_all(timeout=120).values()) == {0}
        wire = "tcp (TLS 1.3)" if tls else "tcp"
        for index in range(2):
            assert f"transport {wire}\n" in group[f"worker{index}"].log()
    done.touch()
    assert capture.wait(timeout=20) == 0
    seen = crossed.read_bytes()
    assert len(seen) > 4 << 20, "a tensor has crossed"
    tensor = np.arange(20, 40, dtype=np.float32).tobytes()  # of wire_worker's numbers
    for part in (tensor, b"TFSCTL01", b"transport addresses"):
        assert (part in seen) is not tls, part


def test_data_is_awaited_on_the_address_of_tf_config_alone(hosts: TwoHosts, tmp_path: Path) -> None:
    module, ports = "tests.cluster.collective.wire_worker", "40000-40010"
    control, data = (f"{hosts.addresses[0]}:{port}" for port in (_PORT, 40000))
    with ProcessGroup(tmp_path) as group:
        start(group, hosts, module, data_ports=ports, only=[0])
        wait_until(lambda: control in hosts.listening(0), _START_SECONDS, "the first worker")
        assert sorted(hosts.listening(0)) == [control, data]
        start(group, hosts, module, data_ports=ports, only=[1])
        assert set(group.wait_all(timeout=_START_SECONDS).values()) == {0}


def test_a_firewall_that_closes_the_data_ports_is_named_when_the_group_starts(
    hosts: TwoHosts, tmp_path: Path
) -> None:
    hosts.answer_nothing_on(0, "40000-40010")
    with ProcessGroup(tmp_path) as group:
        start(group, hosts, "tests.cluster.native.native_ops_worker", "tcp", "4", data_ports="40000-40010")
        assert set(group.wait_all(timeout=30).values()) == {1}
        first, second = (group[f"worker{index}"].log() for index in range(2))
        at = f"worker 0 ({hosts.addresses[0]}:{_PORT}) (data port {hosts.addresses[0]}:40000) after 4 s"
        assert f"has no data connection with {at}: no answer came; let the firewall pass TCP" in second
        assert f"has no data connection with worker 1 ({hosts.addresses[1]}:{_PORT})" in first


def test_what_compressed_gradients_send_is_what_the_interfaces_count(hosts: TwoHosts, tmp_path: Path) -> None:
    with ProcessGroup(tmp_path) as group:
        start(group, hosts, "tests.cluster.compression.compressed_traffic_worker")
        assert set(group.wait_all(timeout=120).values()) == {0}
        for index in range(2):
            found = dict(re.findall(r"^(\w+) (\[.*\])$", group[f"worker{index}"].log(), re.M))
            assert set(found) == {"dense", "gathered", "scattered", "quantized"}
            for name, text in found.items():
                told, counted = json.loads(text)
                assert told <= counted <= 1.06 * told + STEPS * _SMALL_MESSAGES, (name, told, counted)


def test_hosts_with_two_workers_each_send_the_buffer_once(hosts: TwoHosts, tmp_path: Path) -> None:
    """Hierarchical: 2(H−1)/H = 1 times its bytes leave a host; binary blocks: 2(H−1)/H times by each of its workers."""
    with ProcessGroup(tmp_path) as group:
        algorithms = ("auto", "hierarchical", "binary_blocks")
        start(group, hosts, "tests.cluster.collective.hierarchical_worker", *algorithms, on_each=2)
        assert set(group.wait_all(timeout=120).values()) == {0}
        size = 4 * sum(math.prod(shape) for shape in SHAPES)
        for index in range(4):
            sent = json.loads(group[f"worker{index}"].log().partition(" sent ")[2])
            for algorithm, times in (("auto", 1), ("hierarchical", 1), ("binary_blocks", 2)):
                assert times * size <= sent[algorithm] <= 1.1 * times * size, sent


def test_hierarchical_is_refused_where_a_host_has_one_worker(hosts: TwoHosts, tmp_path: Path) -> None:
    with ProcessGroup(tmp_path) as group:
        start(group, hosts, "tests.cluster.collective.hierarchical_worker", "hierarchical")
        assert set(group.wait_all(timeout=60).values()) == {1}
        for index in range(2):
            log = group[f"worker{index}"].log()
            assert re.search(
                r"BootstrapError: .*needs the same number of workers.* on hosts 0, 1; use", log
            ), log


def test_a_cut_link_ends_fit_on_both_hosts(hosts: TwoHosts, tmp_path: Path) -> None:
    with ProcessGroup(tmp_path) as group:
        start(group, hosts, "tests.cluster.collective.failing_fit_worker", "none")
        for index in range(2):
            group[f"worker{index}"].wait_for_text(r"^step 20$", timeout=_START_SECONDS)
        cut_at = time.monotonic()
        hosts.cut()
        for index in range(2):
            process = group[f"worker{index}"]
            assert process.wait(timeout=30) == 3, process.log()
            found = re.search(r"ended at (\S+) with \w+ lost=True: (.*)", process.log())
            assert found is not None, process.log()
            assert f"worker {1 - index} ({hosts.addresses[1 - index]}:{_PORT})" in found[2]
            assert float(found[1]) - cut_at < HEARTBEAT_SECONDS + _NOTICE_SECONDS
