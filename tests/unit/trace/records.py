"""Records for tests of the trace."""

from __future__ import annotations

from typing import Any

from tf_strategies.trace.record import Collective, Record

MILLISECOND = 1_000_000


def collective(submitted: float, ended: float, instance: int = 0, use: int = 0, **fields: Any) -> Collective:
    """A collective with its times in milliseconds."""
    times = {
        "submitted_ns": int(submitted * MILLISECOND),
        "started_ns": int(submitted * MILLISECOND),
        "ended_ns": int(ended * MILLISECOND),
    }
    base = {
        "kind": "all_reduce",
        "name": "gradients",
        "algorithm": "binary_blocks",
        "dtype": "float32",
        "bytes": 400,
    }
    return Collective(
        **{**base, **times, "instance": instance, "use": use, "last_peer": -1, "code": 0, **fields}
    )


def record(rank: int, *collectives: Collective, size: int = 2, hosts: str = "same", **fields: Any) -> Record:
    """A record of a group whose ranks share a host, or have one each."""
    base = {
        "epoch": 7,
        "names": tuple(f"worker {each}" for each in range(size)),
        "hosts": tuple("host" if hosts == "same" else f"host {each}" for each in range(size)),
        "failure": "",
        "monotonic_ns": 10_000 * MILLISECOND,
        "offset": None,
    }
    return Record(rank=rank, collectives=collectives, **{**base, **fields})
