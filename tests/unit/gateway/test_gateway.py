"""Tests the gateway with real processes: two tasks on 127.0.0.2 and 127.0.0.3, and a server on 127.0.0.1 that echoes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Iterator

import pytest

from tests.support import certificates
from tests.support.processes import wait_until
from tf_strategies.errors import BootstrapError
from tf_strategies.gateway import Gateway, Security, open_data_connection, reason_of_refusal
from tf_strategies.gateway.greeting import Caller, Purpose
from tf_strategies.gateway.process import NO_PROXY, PROXY
from tf_strategies.gateway.streams import open_data
from tf_strategies.secret import SECRET_FILE, read_secret
from tf_strategies.tls import TLS_FOLDER, read_tls

pytestmark = pytest.mark.any_line
_SECONDS = 20


def secret_file(path: Path, digit: str) -> str:
    path.touch(mode=0o600)
    path.write_text(digit * 64)
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Returns what tasks may have in their environment, by name."""
    folder = tmp_path_factory.mktemp("gateway")
    secret = {SECRET_FILE: secret_file(folder / "a", "a")}
    tls = {TLS_FOLDER: certificates.make(folder / "tls")}
    return {
        "nothing": {},
        "secret": secret,
        "another secret": {SECRET_FILE: secret_file(folder / "b", "b")},
        "tls": tls,
        "another authority": {TLS_FOLDER: certificates.make(folder / "other")},
        "secret and tls": {**secret, **tls},
    }


def security(environ: dict[str, str]) -> Security:
    return Security(read_secret(environ), read_tls("auto", environ))


@contextlib.contextmanager
def echo() -> Iterator[int]:
    """Runs a server on 127.0.0.1 that sends back what it gets. Gives its port."""

    def serve(opened: socket.socket) -> None:
        with opened, contextlib.suppress(OSError):
            while data := opened.recv(1 << 16):
                opened.sendall(data)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def stderr_in(path: Path) -> Iterator[None]:
    """Opens a context in which this process and those that it starts write their stderr to a file.

    `capfd.readouterr` empties a file to which other processes may write meanwhile, and so can lose a line.
    """
    before = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator:
    """Returns a function that starts the gateway of a task with an environment."""
    monkeypatch.setenv(PROXY, "")
    monkeypatch.setenv(NO_PROXY, "")
    with contextlib.ExitStack() as started:

        def start_one(name: str, addresses: list[str], environ: dict[str, str], take=None) -> Gateway:
            for variable in (SECRET_FILE, TLS_FOLDER):
                monkeypatch.delenv(variable, raising=False)
            for variable, value in environ.items():
                monkeypatch.setenv(variable, value)
            gateway = Gateway(name, addresses, take)
            started.callback(gateway.close)
            return gateway

        yield start_one


def through_proxy(address: str) -> socket.socket:
    """Connects as gRPC does."""
    host, port = os.environ[PROXY].rpartition("/")[2].split(":")
    opened = socket.create_connection((host, int(port)), _SECONDS)
    opened.sendall(f"CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        more = opened.recv(1)
        assert more, f"the proxy closed the connection after {head!r}"
        head += more
    if not head.startswith(b"HTTP/1.1 200 "):
        opened.close()
        raise ConnectionError(head.decode().strip())
    return opened


def echoed(opened: socket.socket, data: bytes) -> bytes:
    sender = threading.Thread(target=opened.sendall, args=(data,))
    sender.start()
    back = b""
    while len(back) < len(data):
        more = opened.recv(1 << 20)
        assert more, f"the connection ended after {len(back)} bytes"
        back += more
    sender.join()
    return back


@pytest.mark.parametrize("kind", ["secret", "tls", "secret and tls"])
def test_what_passes_two_gateways_arrives_as_it_was(kind: str, files, start) -> None:
    with echo() as port:
        address = f"127.0.0.2:{port}"
        start("ps 0", [address], files[kind]).accept_at(address)
        start("worker 0", [address], files[kind])
        data = os.urandom(3 << 20)
        with through_proxy(address) as first, through_proxy(address) as second:
            assert echoed(first, data) == data
            assert echoed(second, b"a few bytes") == b"a few bytes"
        assert reason_of_refusal(address, security(files[kind])) == ""


@pytest.mark.parametrize(
    "theirs, mine, reason",
    [
        ("secret", "another secret", "it does not know the secret of this cluster"),
        ("secret", "nothing", "it uses a secret, and this task does not"),
        ("secret", "tls", "it uses a secret, and this task does not"),
        ("tls", "secret and tls", "this task uses a secret, and it does not"),
        ("secret and tls", "secret", "it uses TLS, and this task does not"),
        ("tls", "another authority", "its certificate is refused"),
    ],
)
def test_tasks_that_disagree_say_why(theirs: str, mine: str, reason: str, files, start, tmp_path) -> None:
    log = tmp_path / "stderr"
    with echo() as port, stderr_in(log):
        address = f"127.0.0.2:{port}"
        start("ps 0", [address], files[theirs]).accept_at(address)
        assert reason in reason_of_refusal(address, security(files[mine]))
        start("worker 0", [address], files[mine])
        with pytest.raises(ConnectionError, match=reason):
            through_proxy(address)
        refused = "ps 0 refused a connection from 127.0.0.1: "
        wait_until(lambda: refused in log.read_text(), _SECONDS, "the warning of the other task")


def test_a_task_without_a_gateway_is_told_from_one_that_is_not_there(files) -> None:
    mine = security(files["secret"])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def say_settings() -> None:  # as TensorFlow's server does
            with listener.accept()[0] as opened:
                opened.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
                opened.recv(1000)

        thread = threading.Thread(target=say_settings)
        thread.start()
        assert "this task uses a secret, and it does not" in reason_of_refusal(f"127.0.0.1:{port}", mine)
        thread.join()
    with pytest.raises(OSError):
        reason_of_refusal(f"127.0.0.1:{port}", mine)


def test_strangers_get_nothing_and_members_are_served_beside_them(files, start) -> None:
    with echo() as port, contextlib.ExitStack() as strangers:
        address = f"127.0.0.2:{port}"
        start("ps 0", [address], files["secret"]).accept_at(address)
        opening = Caller(security(files["secret"]), Purpose.TENSORFLOW).opening
        stolen = Caller(security(files["another secret"]), Purpose.TENSORFLOW).opening
        for said in (
            os.urandom(4096),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]),
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(512),
            opening + os.urandom(32),
            opening + bytes(1 << 16),
            stolen + os.urandom(32),
            opening[:9] + bytes([255]) + opening[10:] + os.urandom(32),
        ):
            with socket.create_connection(("127.0.0.2", port), _SECONDS) as stranger:
                with contextlib.suppress(ConnectionError):
                    stranger.sendall(said)
                heard = b""
                with contextlib.suppress(ConnectionError):
                    while more := stranger.recv(1 << 16):
                        heard += more
                assert len(heard) in (0, 73), "it is answered with a challenge at most"
        for _ in range(100):  # more than the gateway keeps
            silent = socket.create_connection(("127.0.0.2", port), _SECONDS)
            strangers.enter_context(silent).sendall(opening[:10])
        start("worker 0", [address], files["secret"])
        with through_proxy(address) as member:
            assert echoed(member, b"served") == b"served"


def test_a_recorded_greeting_is_of_no_use(files, start) -> None:
    with echo() as port:
        address = f"127.0.0.2:{port}"
        start("ps 0", [address], files["secret"]).accept_at(address)
        caller = Caller(security(files["secret"]), Purpose.TENSORFLOW)
        proof = b""
        for answers in (True, False):
            with socket.create_connection(("127.0.0.2", port), _SECONDS) as opened:
                opened.sendall(caller.opening)
                answer = opened.recv(73, socket.MSG_WAITALL)
                caller.check(answer[:9])
                proof = proof or caller.proof(answer[9:])
                opened.sendall(proof)
                with contextlib.suppress(ConnectionError):
                    assert (opened.recv(1) == b"\1") is answers


@pytest.mark.parametrize("kind", ["secret", "tls"])
def test_connections_for_tensors_reach_the_process_of_the_task(kind: str, files, start) -> None:
    with echo() as port:
        address = f"127.0.0.2:{port}"
        taken: list[tuple[bytes, int]] = []
        gateway = start("ps 0", [address], files[kind], lambda *connection: taken.append(connection))
        gateway.accept_at(address)
        mine, ticket = open_data_connection(address, security(files[kind]))
        with mine:
            wait_until(lambda: bool(taken), _SECONDS, "the connection")
            assert taken[0][0] == ticket
            with socket.socket(fileno=taken[0][1]) as theirs:
                theirs.setblocking(True)
                theirs.sendall(b"tensor")
                mine.setblocking(True)
                assert mine.recv(100) == b"tensor"
        for used in (ticket, os.urandom(len(ticket))):
            with pytest.raises(OSError):
                asyncio.run(open_data(address, security(files[kind]), used))
        assert len(taken) == 1, "a ticket is for one connection"


def test_the_proxy_serves_this_user_alone(files, start) -> None:
    if os.getuid() != 0:
        pytest.skip("another user can be played by root alone")
    with echo() as port:
        start("worker 0", [], files["secret"])
        with through_proxy(f"127.0.0.1:{port}") as mine:
            assert echoed(mine, b"mine") == b"mine"
        host, at = os.environ[PROXY].rpartition("/")[2].split(":")
        program = (
            "import os, socket; os.setuid(65534)\n"
            f"opened = socket.socket(); opened.settimeout(10); opened.connect(({host!r}, {at}))\n"
            f"opened.sendall(b'CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\n')\n"
            "try: print(opened.recv(100))\nexcept ConnectionError: print(b'')"
        )
        answer = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=_SECONDS
        )
        assert answer.stdout.strip() == "b''", answer.stderr


def test_a_task_that_takes_no_tensors_gives_no_valid_ticket(files, start) -> None:
    with echo() as port:
        address = f"127.0.0.2:{port}"
        start("worker 0", [address], files["tls"]).accept_at(address)
        with pytest.raises(OSError):
            open_data_connection(address, security(files["tls"]))


def test_a_gateway_that_ends_is_reported(files, start, caplog) -> None:
    gateway = start("ps 0", [], files["secret"])
    gateway._process.kill()
    wait_until(lambda: "the gateway of ps 0 has ended" in caplog.text, _SECONDS, "the report")
    with pytest.raises(BootstrapError, match="the gateway of ps 0 has ended"):
        gateway.accept_at("127.0.0.2:22139")


def test_modules_of_the_working_directory_are_not_run(files, start, tmp_path, monkeypatch) -> None:
    (tmp_path / "asyncio.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    with echo() as port:
        address = f"127.0.0.2:{port}"
        start("ps 0", [address], files["secret"]).accept_at(address)
        assert reason_of_refusal(address, security(files["secret"])) == ""


def test_the_gateway_ends_with_its_task_and_frees_the_address(files, start) -> None:
    with echo() as port:
        address = f"127.0.0.2:{port}"
        program = (
            "import os, sys, time\nfrom tf_strategies.gateway import Gateway\n"
            f"gateway = Gateway('ps 0', [{address!r}])\ngateway.accept_at({address!r})\n"
            "if not os.fork():\n    time.sleep(60)\n    os._exit(0)\n"  # keeps the control socket open
            "print('ready', flush=True)\ntime.sleep(60)"
        )
        task = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **files["secret"]},
            start_new_session=True,
        )
        try:
            assert task.stdout is not None and task.stdout.readline() == "ready\n"
            assert reason_of_refusal(address, security(files["secret"])) == ""
            task.kill()
            task.wait(_SECONDS)

            def is_free() -> bool:
                with contextlib.suppress(OSError), socket.create_server(("127.0.0.2", port)):
                    return True
                return False

            wait_until(is_free, _SECONDS, "the end of the gateway")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(task.pid, signal.SIGKILL)
