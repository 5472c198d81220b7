"""What a worker finds out about its host before it opens a transport."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tf_strategies.native import host


def test_two_processes_of_this_host_have_one_identity() -> None:
    code = "from tf_strategies.native import host; print(host.identity())"
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert other.stdout.strip() == host.identity()


@pytest.mark.parametrize("namespace", ["net", "ipc", "pid"])
def test_a_container_has_another_identity(namespace: str) -> None:
    """Processes with ids of different namespaces cannot share memory: the containers of one pod."""
    code = "from tf_strategies.native import host; print(host.identity())"
    apart = ["unshare", f"--{namespace}", "--fork", sys.executable, "-c", code]
    other = subprocess.run(apart, capture_output=True, text=True, timeout=60)
    if "Operation not permitted" in other.stderr:
        pytest.skip("needs root: unshare makes a namespace")
    assert other.returncode == 0, other.stderr
    assert other.stdout.strip() != host.identity()


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [("a", 1), ("aa", 2), ("aabb", 2), ("aaabbb", 3), ("ab", 1), ("abab", 1), ("aab", 1), ("aabba", 1)],
)
def test_ranks_per_host_counts_where_hosts_follow_one_another(hosts: str, expected: int) -> None:
    assert host.ranks_per_host(list(hosts)) == expected


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "127.0.0.77", "::1"])
def test_loopback_addresses_are_on_the_loopback_interface(name: str) -> None:
    assert host.interface_of(name) == "lo"


@pytest.mark.parametrize("name", ["192.0.2.1", "no-such-host.invalid"])
def test_addresses_of_others_are_on_no_interface(name: str) -> None:
    assert host.interface_of(name) is None


def test_transport_stays_on_the_interface_of_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UCX_NET_DEVICES", raising=False)
    assert host.net_devices("127.0.0.1") in ("lo", "")
    assert host.net_devices("192.0.2.1") == ""
    monkeypatch.setenv("UCX_NET_DEVICES", "eth7")
    assert host.net_devices("127.0.0.1") == ""


def test_transport_options_become_ucx_transports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UCX_TLS", raising=False)
    assert host.transports("auto") == ("", "^sysv", "tcp,self")
    assert host.transports("tcp") == ("tcp,self",)
    assert host.transports("shared_memory") == ("sm,self",)


def test_the_transports_that_a_user_set_are_the_only_ones_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_TLS", "sysv,self")
    assert host.transports("auto") == ("",)
