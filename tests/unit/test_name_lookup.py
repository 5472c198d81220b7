"""A host is found while the name server is silent, if it was found before; a new address counts when the server answers."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support import namespaces
from tf_strategies.name_lookup import look_up

pytestmark = pytest.mark.any_line


def test_a_silent_name_server_does_not_hide_a_host_that_was_found(tmp_path: Path) -> None:
    reason = namespaces.missing()
    if reason:
        pytest.skip(reason)
    resolver = tmp_path / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\noptions timeout:3 attempts:1\n")
    script = 'ip link set lo up && mount --bind "$0" /etc/resolv.conf && exec "$@"'
    command = ["unshare", "--net", "--mount", "sh", "-c", script, str(resolver), sys.executable]
    done = subprocess.run(
        [*command, "-m", "tests.unit.silent_name_server"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {step: address for step, (address, _) in found.items()} == {
        "first": "10.1.2.3",
        "silent": "10.1.2.3",
        "never known": "unknown",
        "moved": "10.1.2.4",
    }
    assert 0.9 < found["silent"][1] < 2.5 < found["never known"][1]


def test_addresses_are_those_of_the_system() -> None:
    assert look_up("127.0.0.1", 2222) == socket.getaddrinfo("127.0.0.1", 2222, type=socket.SOCK_STREAM)
    with pytest.raises(socket.gaierror):
        look_up("no-such-host.invalid", 2222)


def test_lookups_at_once_share_an_answer() -> None:
    found: list = []
    threads = [threading.Thread(target=lambda: found.append(look_up("localhost", 1))) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert len(found) == 8 and all(each == found[0] for each in found)
