"""The parameter server of test_ledger.py. Argument: its address.

A worker's incarnation is its process id: whose process is gone, is lost.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import tensorflow as tf

from tf_strategies.native import ledger_core, loader


def mark_lost_who_is_gone() -> None:
    for name in ledger_core.names():
        for worker, member in enumerate(ledger_core.members(name)):
            here = member.status in ("training", "idle")
            if here and not Path(f"/proc/{member.incarnation}").exists():
                assert ledger_core.mark_lost(name, worker, member.incarnation)
                print(f"lost {member.name} of {name}", flush=True)


def main(address: str) -> None:
    loader.library()
    server = tf.distribute.Server({"ps": [address]}, job_name="ps", task_index=0, protocol="grpc")
    print(f"serving at {server.target}", flush=True)
    while True:
        mark_lost_who_is_gone()
        time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
