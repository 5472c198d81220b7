"""A worker of test_hosts.py, one of two on its host: adds up a pack with each algorithm, and prints what its host has sent.

Its arguments are the algorithms.
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import tensorflow as tf

from tests.support.interfaces import carried
from tf_strategies.cluster import Cluster
from tf_strategies.native import collective_ops
from tf_strategies.native.communicator import Communicator
from tf_strategies.native.subgroup import open_subgroup
from tf_strategies.options import CommunicationOptions

SHAPES = [(300, 700), (3,), (129, 640)]
CALLS = 10


def summed(group: Communicator) -> None:
    """Adds up a pack of large and small tensors, and checks the sums."""
    inputs = [np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 97 for shape in SHAPES]
    mine = [tf.constant(each * (group.rank + 1)) for each in inputs]
    for found, each in zip(collective_ops.all_reduce(mine, communicator=group, name="sum"), inputs):
        np.testing.assert_array_equal(found.numpy(), each * sum(range(1, group.size + 1)))


def summed_between_hosts(group: Communicator) -> None:
    """Adds up numbers of a subgroup with one worker of each host, which no hierarchy fits."""
    assert [group.hosts.index(each) for each in group.hosts] == [0, 0, 2, 2]
    part = open_subgroup(group, [3, 0], 0)
    assert (part is not None) == (group.rank in (0, 3))
    if part is not None:
        (found,) = collective_ops.all_reduce([tf.constant([group.rank])], communicator=part, name="between")
        assert found.numpy() == [3] and part.rank == int(group.rank == 0)
    collective_ops.barrier(communicator=group, name="added up between hosts")
    if part is not None:
        part.end_failures()
        part.close()


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    cluster = Cluster.from_tf_config()
    sent = {}
    for algorithm in sys.argv[1:]:
        group = Communicator.connect(cluster, CommunicationOptions(algorithm=algorithm, timeout=60))
        summed(group)
        summed_between_hosts(group)
        collective_ops.barrier(communicator=group, name="connected")
        before = carried()["sent"]
        collective_ops.barrier(communicator=group, name="counted")
        for _ in range(CALLS):
            summed(group)
        collective_ops.barrier(communicator=group, name="all added up")
        sent[algorithm] = (carried()["sent"] - before) / CALLS
        used = {each["algorithm"] for each in group.stats()["collectives"] if each["kind"] == "all_reduce"}
        assert used == {"hierarchical" if algorithm == "auto" else algorithm}, used
        group.close()
    print(f"process {os.getpid()} sent {json.dumps(sent)}")


if __name__ == "__main__":
    main()
