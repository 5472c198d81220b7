"""What this machine can do at most, beside which figures are shown.

An all-reduce of n bytes between P ranks has every rank send at least 2(P−1)/P·n bytes and receive as many, so the group moves
2(P−1)·n.

Shared memory: each of these bytes is copied once at least, by one of C cores. The copies are measured in the contest itself: P
processes copy 2(P−1)/P·n bytes each, at once (`copy` in benchmarks/allreduce_contestants.py), so that with P > C they share the
cores as ranks do. The time of that is the limit; reading a second operand and adding come on top.

TCP on one host: `ucx_perftest` (tag_bw, messages of 1 MB, UCX_TLS=tcp on lo, with the settings of ops/transport/ucx.cc, without
which it is 3 times slower) measures the bytes per second B of one stream, whose sender and receiver keep a core each. C cores
carry min(C, P)/2 such streams: the limit is 2(P−1)·n / (B·min(C, P)/2).
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
from importlib.util import find_spec
from pathlib import Path

from tf_strategies.launcher.ports import ReservedPorts

__all__ = ["LimitError", "tcp_bytes_per_second", "tcp_limit"]

_TEST = ("-t", "tag_bw", "-s", str(1 << 20), "-n", "1000", "-f")
_RUNS = 3
_RUN_SECONDS = 60
_MIB = 1 << 20


class LimitError(RuntimeError):
    """The limit could not be measured; the message says why."""


def tcp_limit(size: int, ranks: int, bytes_per_second: float, cores: int) -> float:
    """Seconds of an all-reduce of so many bytes; see above."""
    return 2 * (ranks - 1) * size / (bytes_per_second * min(cores, ranks) / 2)


def tcp_bytes_per_second() -> float:
    """The median of three runs of ucx_perftest.

    Raises:
        LimitError: it is missing, or failed.
    """
    found = find_spec("libucx")
    if found is None or found.origin is None:
        raise LimitError("there is no ucx_perftest: install libucx-cu12")
    return statistics.median(_measure(Path(found.origin).parent) for _ in range(_RUNS))


def _measure(package: Path) -> float:
    environment = {
        **os.environ,
        "UCX_TLS": "tcp,self",
        "UCX_NET_DEVICES": "lo",
        "UCX_TCP_TX_SEG_SIZE": "256k",
        "UCX_TCP_RX_SEG_SIZE": "256k",
        "UCX_RNDV_THRESH": "100k",
        "UCX_LOG_LEVEL": "error",
        "LD_LIBRARY_PATH": str(package / "lib"),
    }
    with ReservedPorts(1) as reserved:
        program = [str(package / "bin" / "ucx_perftest"), "-p", str(reserved.ports[0])]
        with subprocess.Popen(
            ["stdbuf", "-oL", *program],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as server:
            try:
                first = server.stdout.readline() if server.stdout else ""
                if "Waiting" not in first:
                    raise LimitError(f"{program[0]} does not start: {first}")
                client = subprocess.run(
                    [program[0], "127.0.0.1", *program[1:], *_TEST],
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=_RUN_SECONDS,
                )
            except subprocess.TimeoutExpired as error:
                raise LimitError(f"ucx_perftest did not end within {_RUN_SECONDS} s") from error
            finally:
                server.kill()
    return parse_bandwidth(client.stdout + client.stderr)


def parse_bandwidth(text: str) -> float:
    """Bytes per second of what `ucx_perftest -t tag_bw -f` prints: of a line of eight numbers the sixth is MB/s overall.

    Raises:
        LimitError: there is no such line.
    """
    for line in text.splitlines():
        numbers = re.findall(r"\d+(?:\.\d+)?", line)
        if len(numbers) == 8 and not line.startswith("["):
            return float(numbers[5]) * _MIB
    raise LimitError(f"ucx_perftest printed no result: {text[-1000:]!r}")
