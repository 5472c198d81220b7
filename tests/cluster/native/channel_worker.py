"""A worker of test_channel.py: what channels carry between it and a real server, against NumPy.

Its command line: the server's address, its own name, the transport, and what to do: "check", "loop" or "wait".
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time

import ml_dtypes
import numpy as np
import tensorflow as tf

from tests.support.checks import run_checks
from tf_strategies.errors import BootstrapError
from tf_strategies.native import loader
from tf_strategies.native.channel import Channel

SERVER = "/job:ps/task:0"
DTYPES = (
    np.float32,
    np.float64,
    np.float16,
    ml_dtypes.bfloat16,
    np.int8,
    np.uint8,
    np.int32,
    np.int64,
    np.bool_,
    np.complex64,
)


def connect(name: str | None = None, timeout: float = 60.0) -> Channel:
    return Channel.connect(
        SERVER,
        name=name or sys.argv[2],
        peer=f"ps 0 ({sys.argv[1]})",
        transport=sys.argv[3],
        timeout=timeout,
        my_host="127.0.0.1",
    )


def values_of(shape: tuple[int, ...], dtype: type, seed: int = 0) -> np.ndarray:
    """Differ by index and by seed, and use all bits of a byte."""
    count = int(np.prod(shape))
    raw = (np.arange(count * np.dtype(dtype).itemsize, dtype=np.uint64) * 131 + seed * 7) >> np.uint64(3)
    if dtype is np.bool_:
        return (raw % 2).astype(bool).reshape(shape)
    return raw.astype(np.uint8).view(dtype).reshape(shape)


def expect_same_bits(found: tf.Tensor, expected: np.ndarray) -> None:
    assert found.shape == expected.shape, (found.shape, expected.shape)
    assert found.numpy().tobytes() == expected.tobytes()


def there_and_back(channel: Channel, signature: tf.TensorSpec) -> tf.types.experimental.GenericFunction:
    """Pushes its argument and pulls it back: both ways by channel; also what the server holds, by TensorFlow."""

    @tf.function(input_signature=[signature])
    def function(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        pushed = channel.push(x)
        with tf.device(SERVER):
            held = tf.identity(pushed)
        return channel.pull(held), held

    return function


def check_every_dtype_and_size_arrives_bit_by_bit(channel: Channel) -> None:
    sizes = {np.float32: [(), (0,), (1,), (1024,), (1025,), (3, 0, 2), (1 << 16,), (3, 333_333), (1 << 24,)]}
    for dtype in DTYPES:
        for shape in sizes.get(dtype, [(), (0, 3), (7, 3), (5, 40_000)]):
            sent = values_of(shape, dtype)
            back, held = there_and_back(channel, tf.TensorSpec(shape, dtype))(sent)
            assert back.dtype == held.dtype == tf.as_dtype(dtype)
            expect_same_bits(back, sent)
            expect_same_bits(held, sent)
            if sent.nbytes > 1 << 20:
                print(f"{sent.nbytes} bytes of {np.dtype(dtype).name}", flush=True)


def check_shapes_may_be_unknown_while_tracing(channel: Channel) -> None:
    for spec, shapes in (
        ([None, 3], [(0, 3), (1, 3), (5000, 3), (2, 3)]),
        (None, [(), (4,), (0,), (100, 100), (2, 3, 4)]),
    ):
        function = there_and_back(channel, tf.TensorSpec(spec, tf.float32))
        for shape in shapes:
            sent = values_of(shape, np.float32)
            expect_same_bits(function(sent)[0], sent)

    @tf.function
    def rows(indices: tf.Tensor) -> tf.IndexedSlices:
        with tf.device(SERVER):
            some = tf.where(indices % 2 == 0)[:, 0]
            values = tf.gather(tf.cast(indices, tf.float32)[:, None] * tf.ones([1, 4]), some)
        return tf.IndexedSlices(channel.pull(values), channel.pull(some))

    found = rows(tf.range(10))
    expect_same_bits(found.indices, np.arange(0, 10, 2))
    expect_same_bits(
        found.values, np.arange(0, 10, 2, dtype=np.float32)[:, None] * np.ones([1, 4], np.float32)
    )


def check_many_transfers_in_one_function_called_often(channel: Channel) -> None:
    shapes = [(16,), (1000,), (5000,), (50, 400)] * 8

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        total = tf.zeros([])
        for i, shape in enumerate(shapes):
            with tf.device(SERVER):
                held = tf.fill(shape, x + float(i))
            local = channel.pull(held, name=f"weight {i}")
            pushed = channel.push(local * 2.0, name=f"gradient {i}")
            with tf.device(SERVER):
                total += tf.reduce_mean(pushed)
        return total

    for call in range(200):
        expected = sum(2.0 * (call + i) for i in range(len(shapes)))
        assert step(tf.constant(float(call))).numpy() == expected, call
    stats = channel.stats()
    assert stats["outstanding"] == stats["unclaimed"] == 0, stats
    assert stats["tensors_received"] >= 200 * len(shapes), stats


def check_a_server_variable_trains(channel: Channel) -> None:
    with tf.device(SERVER):
        variable = tf.Variable(tf.zeros([300, 300]))

    @tf.function
    def step(x: tf.Tensor) -> None:
        with tf.device(SERVER):
            value = variable.read_value()
        local = channel.pull(value)
        update = channel.push(local * 0.0 + x)
        with tf.device(SERVER):
            variable.assign_add(update)

    for i in range(20):
        step(tf.constant(float(i)))
    expect_same_bits(variable.read_value(), np.full([300, 300], 190.0, np.float32))


def check_outside_of_a_function_tensorflow_carries(channel: Channel) -> None:
    before = channel.stats()["messages_sent"]
    pushed = channel.push(tf.range(5))
    assert "/job:ps/" in pushed.device, pushed.device
    back = channel.pull(pushed)
    assert "/job:ps/" not in back.device, back.device
    expect_same_bits(back, np.arange(5, dtype=np.int32))
    assert channel.stats()["messages_sent"] == before


def check_branches_and_loops_pair_their_own_transfers(channel: Channel) -> None:
    @tf.function
    def branch(taken: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        if taken:
            return channel.push(channel.pull(x)) + 1.0
        return x

    @tf.function
    def loop(count: tf.Tensor) -> tf.Tensor:
        total = tf.zeros([2000])
        for i in tf.range(count):
            with tf.device(SERVER):
                held = tf.fill([2000], tf.cast(i, tf.float32))
            total += channel.pull(held)
        return total

    for taken in (True, False, False, True):
        expect_same_bits(
            branch(tf.constant(taken), tf.ones([3000])), np.full([3000], 1.0 + taken, np.float32)
        )
    for count in (0, 1, 50):
        expect_same_bits(loop(tf.constant(count)), np.full([2000], count * (count - 1) / 2, np.float32))


def check_a_step_that_is_given_up_does_no_harm(channel: Channel) -> None:
    with tf.device(SERVER):
        variables = [tf.Variable(tf.fill([size], 3.0)) for size in (10, 2_000_000)]

    @tf.function
    def step(iterator: tf.data.Iterator) -> list[tf.Tensor]:
        with tf.device(SERVER):
            values = [variable.read_value() for variable in variables]
        local = [channel.pull(value) for value in values]
        batch = next(iterator)
        return [channel.push(value * batch) for value in local]

    for epoch in range(10):
        batches = iter(tf.data.Dataset.range(1, 4).map(lambda i: tf.cast(i, tf.float32)))
        steps = 0
        with contextlib.suppress(tf.errors.OutOfRangeError):
            while True:
                for found, size in zip(step(batches), (10, 2_000_000)):
                    expect_same_bits(found, np.full([size], 3.0 * (steps + 1), np.float32))
                steps += 1
        assert steps == 3, (epoch, steps)
    stats = channel.stats()
    assert stats["unclaimed"] <= 30, stats


def check_what_cannot_work_is_refused(channel: Channel) -> None:
    @tf.function
    def push(x: tf.Tensor, key: int | None) -> tf.Tensor:
        return channel.push(x, key=key)

    for bad, error, text in (
        (lambda: push(tf.constant("text"), None), TypeError, "string"),
        (lambda: push(tf.ones([]), -1), ValueError, "key must be in"),
        (lambda: push(tf.ones([]), 1 << 32), ValueError, "key must be in"),
    ):
        try:
            bad()
        except error as raised:
            assert text in str(raised), raised
        else:
            raise AssertionError(f"accepted where {text!r} was expected")

    @tf.function(input_signature=[tf.TensorSpec(None)])
    def believe(x: tf.Tensor) -> tf.Tensor:
        x.set_shape([None, 3])
        return channel.push(x, name="rows")

    expect_same_bits(believe(tf.ones([2, 3])), np.ones([2, 3], np.float32))
    for shape in ([2, 4], [3], [5000, 4]):
        try:
            believe(tf.ones(shape))
        except tf.errors.InvalidArgumentError as raised:
            assert "expects float[?,3], but the other end sent" in raised.message, raised.message
            assert "push 'rows'" in raised.message, raised.message
        else:
            raise AssertionError(f"accepted {shape}")
    expect_same_bits(believe(tf.ones([2, 3])), np.ones([2, 3], np.float32))


def check_a_transfer_that_is_overdue_names_the_server(channel: Channel) -> None:
    del channel
    other = connect(f"{sys.argv[2]} again")

    @tf.function
    def nobody_sends() -> tf.Tensor:
        return loader.library().tf_strategies_channel_receive(
            T=tf.float32, shape=[3], channel=other._worker.channel, key=7, label="pull 'weights'", timeout=0.4
        )

    for _ in range(2):
        start = time.monotonic()
        try:
            nobody_sends()
        except tf.errors.DeadlineExceededError as raised:
            assert "pull 'weights' waited 0.4 s" in raised.message and "ps 0 (" in raised.message, (
                raised.message
            )
            assert time.monotonic() - start < 3
        else:
            raise AssertionError("nothing came, and nothing was raised")
    assert "0.4 s" in (other.failure() or "")
    other.close()


def check_a_closed_channel_says_so(channel: Channel) -> None:
    del channel
    other = connect(f"{sys.argv[2]} again")

    @tf.function
    def pull() -> tf.Tensor:
        with tf.device(SERVER):
            x = tf.ones([3])
        return other.pull(x)

    pull()
    assert other.failure() is None
    other.close()
    other.close()
    try:
        pull()
    except tf.errors.AbortedError as raised:
        assert "closed" in raised.message, raised.message
    else:
        raise AssertionError("a closed channel carried a tensor")
    assert other.stats() == {} and other.failure() == "it was closed"


def check_a_process_that_is_not_prepared_accepts_nothing(channel: Channel) -> None:
    del channel
    try:
        Channel.connect("/device:CPU:0", name="worker 0 (a:1)", peer="ps 7 (b:2)", timeout=5)
    except BootstrapError as raised:
        assert "ps 7 (b:2)" in str(raised) and "channel.prepare()" in str(raised), raised
    else:
        raise AssertionError("a channel was accepted")


def loop_until_it_fails(channel: Channel) -> None:
    """Pulls and pushes for ever; a watcher fails the channel when its connection to the server breaks."""
    address, _, port = sys.argv[1].rpartition(":")
    connection = socket.create_connection((address, int(port)))

    def watch() -> None:
        with contextlib.suppress(OSError):
            while connection.recv(4096):
                pass
        channel.fail("its connection broke")

    threading.Thread(target=watch, daemon=True).start()

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        return there_and_back(channel, tf.TensorSpec([None]))(x)[0]

    x = tf.ones([4_000_000])
    count = 0
    try:
        while True:
            step(x)
            count += 1
            print("step", count, flush=True)
    except tf.errors.OpError as error:
        print(f"ended at {time.time()} with {type(error).__name__}: {error.message}", flush=True)
        print("failure:", channel.failure(), flush=True)


def wait_until_it_fails(channel: Channel) -> None:
    """Waits for what the server will never send."""

    @tf.function
    def never() -> tf.Tensor:
        library = loader.library()
        common = {"key": 7, "label": "waiting", "timeout": 200.0}
        with tf.device(SERVER):
            return library.tf_strategies_channel_receive(
                T=tf.float32, shape=[3], channel=channel._server.channel, **common
            )

    print("waiting", flush=True)
    try:
        never()
    except tf.errors.OpError as error:
        print(f"ended with {type(error).__name__}: {error.message}", flush=True)
        print("failure:", channel.failure(), flush=True)


def main() -> None:
    tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec({"ps": [sys.argv[1]]}))
    channel = connect()
    what = sys.argv[4]
    if what == "check":
        run_checks(globals(), channel)
        print("transport:", channel.stats()["transport"], flush=True)
    else:
        {"loop": loop_until_it_fails, "wait": wait_until_it_fails}[what](channel)
    channel.close()
    print("finished", flush=True)


if __name__ == "__main__":
    main()
