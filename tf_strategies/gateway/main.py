"""Runs the gateway of a task, as a process that the task starts and that ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys

from tf_strategies.gateway.greeting import Security
from tf_strategies.gateway.inbound import Inbound
from tf_strategies.gateway.outbound import serve_proxy
from tf_strategies.secret import read_secret
from tf_strategies.tls import read_tls

_MOST_MESSAGE = 1 << 20
# Signals that may be sent to a whole process group. The task decides what they mean.
_OF_THE_TASK = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
)


def main() -> None:
    """Serves until the task ends. The argument is the descriptor of its control socket.

    Each message on this socket is a JSON object. The task sends its name and the addresses of all tasks, and gets the port of
    the proxy. Later it sends a socket that listens, with the port of TensorFlow's server. It gets each connection for tensors,
    with its ticket.
    """
    for each in _OF_THE_TASK:
        signal.signal(each, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    control = socket.socket(fileno=int(sys.argv[1]))
    control.settimeout(None)
    asyncio.run(_serve(control, Security(read_secret(), read_tls())))


async def _serve(control: socket.socket, security: Security) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    begin = json.loads(control.recv(_MOST_MESSAGE))
    _, port = await serve_proxy(begin["addresses"], security)
    control.send(json.dumps({"port": port}).encode())
    accepting: list[asyncio.Future[None]] = []

    def hand_over(opened: socket.socket, ticket: bytes) -> None:
        socket.send_fds(control, [json.dumps({"ticket": ticket.hex()}).encode()], [opened.fileno()])

    def heed() -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(control, _MOST_MESSAGE, 1)
        except OSError:
            message = b""
        if not message:
            loop.remove_reader(control)
            ended.set()
            return
        if not descriptors:
            logging.error("%s has too many open files for its gateway", begin["name"])
            os._exit(1)
        order = json.loads(message)
        takes = hand_over if order["takes_tensors"] else None
        inbound = Inbound(order["port"], security, begin["name"], takes)
        accepting.append(asyncio.ensure_future(inbound.accept(socket.socket(fileno=descriptors[0]))))

    control.setblocking(False)
    loop.add_reader(control, heed)
    with contextlib.suppress(OSError, AttributeError):  # Linux before 5.3
        # A child that the task has forked may keep the control socket open.
        loop.add_reader(os.pidfd_open(os.getppid()), ended.set)
    await ended.wait()
    os._exit(0)
