"""The parameter server of test_channel.py. On SIGUSR1 it fails its channels to worker 0, on SIGUSR2 it closes them."""

from __future__ import annotations

import signal
import sys

import tensorflow as tf

from tf_strategies.native import channel


def main() -> None:
    orders = {signal.SIGUSR1, signal.SIGUSR2}
    signal.pthread_sigmask(signal.SIG_BLOCK, orders)
    channel.prepare("127.0.0.1")
    server = tf.distribute.Server(tf.train.ClusterSpec({"ps": [sys.argv[1]]}), job_name="ps", task_index=0)
    print("serving at", server.target, flush=True)
    while True:
        if signal.sigwait(orders) == signal.SIGUSR1:
            channel.fail_channels_to("worker 0", "worker 0 is lost, says the server")
        else:
            channel.close_channels_to("worker 0")
        print("channels to worker 0:", len(channel.channels_to("worker 0")), flush=True)


if __name__ == "__main__":
    main()
