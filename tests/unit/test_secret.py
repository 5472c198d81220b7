"""Tests that the file of a secret is read only if nobody else can, and that its errors say what to do."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path
from typing import Dict

import pytest

from tests.support.our_logs import our_messages
from tf_strategies import secret
from tf_strategies.cluster import Cluster, Task
from tf_strategies.errors import ClusterConfigError
from tf_strategies.native.settings import settings_of
from tf_strategies.options import CommunicationOptions
from tf_strategies.secret import (
    SECRET_FILE,
    read_secret,
    temporary_secret_file,
    warn_of_servers,
    warn_without_secret,
)

pytestmark = pytest.mark.any_line

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def file_with(folder: Path, text: str, mode: int = 0o600) -> Dict[str, str]:
    """Returns the environment that names a new file."""
    path = folder / "secret"
    path.write_text(text)
    path.chmod(mode)
    return {SECRET_FILE: str(path)}


def test_no_file_is_no_secret() -> None:
    assert read_secret({}) == b""
    assert read_secret({SECRET_FILE: ""}) == b""


@pytest.mark.parametrize("mode", [0o600, 0o400])
@pytest.mark.parametrize("text", ["0A" * 32, "0a" * 32 + "\n", " " + "0a" * 32 + "\r\n"])
def test_the_digits_of_a_file_are_the_secret(tmp_path: Path, text: str, mode: int) -> None:
    assert read_secret(file_with(tmp_path, text, mode)) == b"\n" * 32


@pytest.mark.parametrize("text", ["", "0a" * 31, "0a" * 33, "0a" * 31 + "xy", "0a" * 16 + "\n" + "0a" * 16])
def test_a_file_without_a_secret_is_refused_with_the_command(tmp_path: Path, text: str) -> None:
    with pytest.raises(
        ClusterConfigError, match="must hold 64 hexadecimal digits; write one with: umask 077"
    ):
        read_secret(file_with(tmp_path, text))


@pytest.mark.parametrize("mode", [0o604, 0o601, 0o602, 0o620, 0o660, 0o777])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    environ = file_with(tmp_path, "0a" * 32, mode)
    with pytest.raises(
        ClusterConfigError, match=f"has mode {mode:04o}.*run: chmod 600 {environ[SECRET_FILE]}"
    ):
        read_secret(environ)


@needs_root
def test_the_group_may_read_what_root_owns_as_kubernetes_mounts_it(tmp_path: Path) -> None:
    assert read_secret(file_with(tmp_path, "0a" * 32, 0o440)) == b"\n" * 32


@needs_root
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    environ = file_with(tmp_path, "0a" * 32)
    os.chown(environ[SECRET_FILE], 12345, -1)
    with pytest.raises(ClusterConfigError, match="belongs to user 12345; it must belong to"):
        read_secret(environ)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterConfigError, match="cannot be read: No such file"):
        read_secret({SECRET_FILE: str(tmp_path / "missing")})
    with pytest.raises(ClusterConfigError, match="cannot be read: Is a directory"):
        read_secret({SECRET_FILE: str(tmp_path)})
    with pytest.raises(ClusterConfigError, match="is no regular file"):
        read_secret({SECRET_FILE: "/dev/null"})


def test_the_command_of_the_message_writes_a_secret(tmp_path: Path) -> None:
    command = secret._WRITE_ONE.partition(": ")[2].replace("FILE", str(tmp_path / "made"))
    subprocess.run(command, shell=True, check=True)
    assert len(read_secret({SECRET_FILE: str(tmp_path / "made")})) == 32


def test_a_temporary_file_has_a_new_secret_and_is_removed() -> None:
    with temporary_secret_file() as first, temporary_secret_file() as second:
        found = [read_secret({SECRET_FILE: path}) for path in (first, second)]
        assert [len(each) for each in found] == [32, 32]
        assert found[0] != found[1]
    assert not Path(first).parent.exists()


def test_addresses_that_others_can_reach_are_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(secret, "_given", set())
    with caplog.at_level(logging.WARNING, "tf_strategies"):
        warn_without_secret(["127.0.0.1:1", "127.1.2.3:1", "[::1]:2", "localhost:3"])
        assert our_messages(caplog) == []
        for _ in range(2):
            warn_without_secret(["127.0.0.1:1", "10.0.0.1:2222", "node-7:2222"])
            warn_of_servers(["node-7:2222"])
    assert [each.partition(":")[0] for each in our_messages(caplog)] == [
        "no secret is set, and other hosts can reach 10.0.0.1",
        "no secret is set, and other hosts can reach node-7",
    ]


def test_a_single_worker_that_others_may_join_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(secret, "_given", set())
    monkeypatch.delenv(SECRET_FILE, raising=False)
    settings_of(Cluster({"worker": ("10.0.0.1:2222",)}, Task("worker", 0)), CommunicationOptions())
    assert "no secret is set, and other hosts can reach 10.0.0.1" in caplog.text
