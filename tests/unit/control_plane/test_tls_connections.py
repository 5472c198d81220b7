"""Tests who the server of the control plane lets in over TLS, and that a member that is not let in finds out why."""

from __future__ import annotations

import contextlib
import queue
import re
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import pytest

from tests.support import certificates
from tests.support.processes import ReservedPorts, wait_until
from tf_strategies.control_plane import notices, tls_probe
from tf_strategies.control_plane.notices import NoticeWatch, give_notice
from tf_strategies.control_plane.remote_link import RemoteLink
from tf_strategies.control_plane.server import ControlServer
from tf_strategies.tls import TLS_FOLDER, TlsFiles, client_context, read_tls

pytestmark = pytest.mark.any_line
SECONDS = 20


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Optional[TlsFiles]]:
    """The files of each kind of task. Those of `expired` are read without the check that would refuse them."""
    root = tmp_path_factory.mktemp("tls")
    found: Dict[str, Optional[TlsFiles]] = {"none": None}
    for name in ("first", "second"):
        found[name] = read_tls("tls", {TLS_FOLDER: certificates.make(root / name)})
    folder = root / "expired"
    certificates.expired(folder)
    found["expired"] = TlsFiles(
        str(folder), *((folder / name).read_bytes() for name in ("ca.crt", "task.crt", "task.key"))
    )
    return found


@contextlib.contextmanager
def served(tls: Optional[TlsFiles]) -> Iterator[str]:
    posted: List[Any] = []

    def post(stream: Any, message: Any) -> None:
        if message is not None:
            posted.append(message)
            stream.send({"type": "heard", "what": message["type"]})
            stream.handled()

    with ReservedPorts(1) as ports:
        server = ControlServer("worker 0", ports.addresses[0], 2, b"secret", post, tls)
        yield ports.addresses[0]
        server.stop()


def outcome(address: str, tls: Optional[TlsFiles]) -> str:
    """Returns what a member hears of rank 0, or the variable and the reason for which it is not let in."""
    answers: queue.SimpleQueue = queue.SimpleQueue()
    link = RemoteLink(
        address,
        b"secret",
        lambda link, message: answers.put(message["what"]),
        lambda link, reason: answers.put(f"{link.refused}: {reason}"),
        tls,
    )
    link.send({"type": "hello"})
    try:
        return str(answers.get(timeout=SECONDS))
    finally:
        link.close()


@pytest.mark.parametrize(
    ("server", "member", "expected"),
    [
        ("first", "first", "hello"),
        ("none", "none", "hello"),
        ("first", "none", f"{TLS_FOLDER}: it uses TLS, and this task does not"),
        ("none", "first", f"{TLS_FOLDER}: this task uses TLS, and it does not"),
        (
            "first",
            "second",
            f"{TLS_FOLDER}: its certificate is refused: unable to get local issuer certificate",
        ),
        ("expired", "first", f"{TLS_FOLDER}: its certificate is refused: "),
    ],
)
def test_who_is_let_in(server: str, member: str, expected: str, files: Dict[str, Optional[TlsFiles]]) -> None:
    with served(files[server]) as address:
        assert outcome(address, files[member]).startswith(expected)


def test_a_certificate_that_only_the_server_refuses_is_named(
    files: Dict[str, Optional[TlsFiles]], tmp_path: Path
) -> None:
    first, second = files["first"], files["second"]
    folder = tmp_path / "mixed"
    folder.mkdir()
    for name, content in (
        ("ca.crt", first.authority),
        ("task.crt", second.certificate),
        ("task.key", second.key),
    ):
        (folder / name).write_bytes(content)
    mixed = TlsFiles(str(folder), first.authority, second.certificate, second.key)
    with served(first) as address:
        assert re.match(rf"{TLS_FOLDER}: it .*refuses the certificate of this task", outcome(address, mixed))


def reach(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), SECONDS)


def test_connections_have_tls_13_where_both_ends_know_it(files: Dict[str, Optional[TlsFiles]]) -> None:
    context = client_context(files["first"])
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    with served(files["first"]) as address:
        wrapped = context.wrap_socket(reach(address), server_hostname="tf-strategies")
        with wrapped:
            assert wrapped.version() == "TLSv1.3"


def test_a_client_without_a_certificate_hears_nothing(files: Dict[str, Optional[TlsFiles]]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    heard = b""
    with served(files["first"]) as address, contextlib.suppress(OSError):
        wrapped = context.wrap_socket(reach(address))
        wrapped.sendall(tls_probe._PREFACE)
        heard = wrapped.recv(1)
    assert heard == b""


def test_a_task_that_is_not_there_is_no_disagreement(files: Dict[str, Optional[TlsFiles]]) -> None:
    with ReservedPorts(1) as ports:
        for each in ("none", "first"):
            assert tls_probe.disagreement(ports.addresses[0], files[each]) == ""


def test_a_server_that_closes_at_once_is_no_disagreement(files: Dict[str, Optional[TlsFiles]]) -> None:
    """Strangers that fill its connections must not make a member give up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def close_each() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        threading.Thread(target=close_each, daemon=True).start()
        for each in ("none", "first"):
            assert tls_probe.disagreement(f"127.0.0.1:{server.getsockname()[1]}", files[each]) == ""


def test_a_notice_reaches_the_watch_once_it_is_given() -> None:
    heard: List[Any] = []
    with ReservedPorts(3) as ports:
        watch = NoticeWatch(
            dict(enumerate(ports.addresses)), lambda *what: heard.append(what), first_after=0.0
        )
        try:
            assert give_notice(ports.addresses[1], "worker 1\nuses \x1b[2J TLS", seconds=SECONDS)
            wait_until(lambda: heard, SECONDS, "the notice")
        finally:
            watch.stop()
    assert heard[0] == (1, "worker 1 uses ?[2J TLS")


def test_a_notice_that_nobody_wants_ends() -> None:
    with ReservedPorts(1) as ports:
        started = time.monotonic()
        assert not give_notice(ports.addresses[0], "x", seconds=0.2)
        assert time.monotonic() - started < 5
    assert not give_notice("192.0.2.200:1", "x")


def test_other_servers_at_the_address_say_nothing_that_counts() -> None:
    """One is silent, one floods, one says something else."""
    with contextlib.ExitStack() as held:
        servers = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]

        def answer(server: socket.socket, said: bytes) -> None:
            with contextlib.suppress(OSError):
                while True:
                    opened = server.accept()[0]
                    held.enter_context(opened)
                    opened.settimeout(1)
                    opened.sendall(said)

        for server, said in zip(servers, (b"", b"TFSWHY01 " + b"x" * (1 << 20), b"SSH-2.0\r\n")):
            threading.Thread(target=answer, args=(server, said), daemon=True).start()
        addresses = {rank: f"127.0.0.1:{each.getsockname()[1]}" for rank, each in enumerate(servers)}
        found = notices._look(addresses, threading.Event())
        assert set(found) <= {1}
        assert all(len(each) <= 600 for each in found.values())
