"""A program of test_name_lookup.py: looks up names at a name server of its own, which falls silent, and comes back with another
address. It needs an /etc/resolv.conf that names 127.0.0.1.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time

from tf_strategies.name_lookup import look_up


class NameServer:
    """Answers each question of type A with one address, unless it is silent."""

    def __init__(self) -> None:
        self.address, self.silent = "10.1.2.3", False
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 53))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            question, sender = self._socket.recvfrom(512)
            if self.silent:
                continue
            end = question.index(b"\0", 12) + 5
            is_ipv4 = struct.unpack("!H", question[end - 4 : end - 2])[0] == 1
            head = question[:2] + struct.pack("!5H", 0x8180, 1, int(is_ipv4), 0, 0)
            answer = struct.pack("!3HIH", 0xC00C, 1, 1, 0, 4) + socket.inet_aton(self.address)
            self._socket.sendto(head + question[12:end] + (answer if is_ipv4 else b""), sender)


def timed(host: str) -> list:
    begin = time.monotonic()
    try:
        found = look_up(host, 2222)[0][4][0]
    except OSError:
        found = "unknown"
    return [found, time.monotonic() - begin]


if __name__ == "__main__":
    server = NameServer()
    steps = {"first": timed("node1.test")}
    server.silent = True
    steps["silent"], steps["never known"] = timed("node1.test"), timed("node2.test")
    server.silent, server.address = False, "10.1.2.4"
    steps["moved"] = timed("node1.test")
    print(json.dumps(steps))
