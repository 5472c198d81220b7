"""Tests that parameter servers with a secret and TLS keep strangers out, between two hosts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.parameter_server.protected_worker import MARK
from tests.support import certificates
from tests.support.namespaces import TwoHosts, missing
from tests.support.processes import ProcessGroup, tf_config, wait_until
from tf_strategies.secret import SECRET_FILE
from tf_strategies.tls import TLS_FOLDER

_PORT = 22132
_SECONDS = 60
# Asks TensorFlow's server for its status, as a worker does.
_STRANGER = """
import sys, grpc
channel = grpc.insecure_channel(sys.argv[1], options=[("grpc.enable_http_proxy", 0)])
try:
    channel.unary_unary("/tensorflow.WorkerService/GetStatus")(b"", timeout=5)
    print("served")
except grpc.RpcError as error:
    print(error.code().name)
"""


def ask_as_a_stranger(hosts: TwoHosts, index: int, address: str) -> str:
    command = ["ip", "netns", "exec", hosts.name(index), sys.executable, "-c", _STRANGER, address]
    return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS).stdout.strip()


def wait_for(path: Path, group: ProcessGroup) -> None:
    """Waits until the worker has written a file."""
    wait_until(lambda: path.exists() or group["worker"].returncode is not None, _SECONDS, path.name)
    assert path.exists()


def test_servers_of_one_machine_are_not_reached_from_another(tmp_path: Path) -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)
    with TwoHosts() as hosts, ProcessGroup(tmp_path) as group:
        cluster = {"ps": [f"127.0.0.1:{_PORT}"], "worker": [f"127.0.0.1:{_PORT + 1}"]}
        for role in cluster:
            group.start_preloaded(
                role,
                "tests.cluster.parameter_server.protected_worker",
                str(tmp_path),
                env={"TF_CONFIG": tf_config(cluster, role, 0)},
                namespace=hosts.name(0),
            )
        wait_for(tmp_path / "trained", group)
        for port in (_PORT, _PORT + 1):
            assert ask_as_a_stranger(hosts, 0, f"127.0.0.1:{port}") == "served"
            assert ask_as_a_stranger(hosts, 1, f"{hosts.addresses[0]}:{port}") == "UNAVAILABLE"


@pytest.mark.parametrize(
    "tls",
    [pytest.param(False, marks=pytest.mark.any_line), True],
    ids=["secret", "secret and TLS"],
)
def test_strangers_are_kept_out_of_a_job_that_trains(tls: bool, tmp_path: Path) -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text("5" * 64)
    protection = {SECRET_FILE: str(secret)}
    if tls:
        protection[TLS_FOLDER] = certificates.make(tmp_path / "tls")
    with TwoHosts() as hosts, ProcessGroup(tmp_path) as group:
        roles = dict(zip(("ps", "worker"), hosts.addresses))
        cluster = {role: [f"{address}:{_PORT}"] for role, address in roles.items()}
        capturing = hosts.capture(1, tmp_path / "captured", str(tmp_path / "captured enough"))
        for index, role in enumerate(roles):
            group.start_preloaded(
                role,
                "tests.cluster.parameter_server.protected_worker",
                str(tmp_path),
                env={"TF_CONFIG": tf_config(cluster, role, 0), **protection},
                namespace=hosts.name(index),
            )
        wait_for(tmp_path / "trained", group)
        (tmp_path / "captured enough").touch()
        assert capturing.wait(_SECONDS) == 0
        assert (MARK.tobytes() * 4 in (tmp_path / "captured").read_bytes()) is not tls
        stats = json.loads((tmp_path / "trained").read_text())
        assert stats["transport"] == ("tcp (TLS 1.3)" if tls else "tcp")
        assert stats["tensors_received"] > 0

        for index in (0, 1):
            assert [end for end in hosts.listening(index) if end.endswith(f":{_PORT}")].count(
                f"{hosts.addresses[index]}:{_PORT}"
            ) == 1
        assert ask_as_a_stranger(hosts, 1, cluster["ps"][0]) == "UNAVAILABLE"
        assert ask_as_a_stranger(hosts, 0, cluster["worker"][0]) == "UNAVAILABLE"
        assert "does not greet as a gateway does" in group["ps"].log()

        (tmp_path / "go on").touch()
        wait_for(tmp_path / "trained again", group)
        group["ps"].signal(signal.SIGKILL)
        (tmp_path / "server is lost").touch()
        assert group["worker"].wait(_SECONDS) != 0
        assert f"ServerLostError: ps 0 ({cluster['ps'][0]}) no longer answers" in group["worker"].log()
