"""A worker of test_hosts.py: adds up some numbers, and prints what carried them and the TCP sockets that it has then."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import tensorflow as tf

from tests.support.tcp_sockets import own_tcp_sockets
from tf_strategies.cluster import Cluster
from tf_strategies.native import collective_ops
from tf_strategies.native.communicator import Communicator
from tf_strategies.options import CommunicationOptions


def main() -> None:
    cluster = Cluster.from_tf_config()
    assert cluster is not None
    group = Communicator.connect(cluster, CommunicationOptions(algorithm="binary_blocks", timeout=60))
    for count in (10, 1 << 20):
        mine = tf.range(count, dtype=tf.float32) % 97 * (group.rank + 1)
        (found,) = collective_ops.all_reduce([mine], communicator=group, name=f"sum of {count}")
        expected = np.arange(count, dtype=np.float32) % 97 * sum(range(1, group.size + 1))
        np.testing.assert_array_equal(found.numpy(), expected)
    print("transport", group.stats()["transport"])
    print("sockets", json.dumps([dataclasses.asdict(each) for each in own_tcp_sockets()]))
    collective_ops.barrier(communicator=group, name="all have looked")
    group.close()


if __name__ == "__main__":
    main()
