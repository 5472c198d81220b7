"""Moving tensors between a worker and a parameter server: a channel against TensorFlow's own gRPC, in one run, in turn.

    python -m benchmarks.channel [--moves 1x4096,32x4096,1x8388608,1x67108864] [--transport tcp] [--csv out/channel.csv]

A real tf.distribute.Server in another process of this machine, and its client. `32x4096` is one tf.function that moves 32
tensors of 4096 bytes. Printed are the median and the spread of milliseconds for one call of the function, which includes the
round trip of the call itself (the line 0x0), the ratio of the medians, and what the channel moves in a second. Takes about
half a minute.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Callable

import numpy as np
import tensorflow as tf

from tf_strategies.launcher.ports import ReservedPorts
from tf_strategies.native.channel import Channel, prepare

_SERVER = "/job:ps/task:0"
_START_SECONDS = 120
_COLUMNS = ("way", "count", "bytes", "channel_ms", "channel_min", "channel_max", "grpc_ms", "grpc_min", "grpc_max",
            "ratio", "channel_gb_per_s")  # fmt: skip


def serve(address: str) -> None:
    """Runs a server until its standard input ends."""
    prepare("127.0.0.1")
    server = tf.distribute.Server(tf.train.ClusterSpec({"ps": [address]}), job_name="ps", task_index=0)
    print("serving", server.target, flush=True)
    sys.stdin.read()
    os._exit(0)


def moves(channel: Channel, way: str, count: int, size: int) -> dict[str, Callable[[], tf.Tensor]]:
    """A function for each implementation that moves so many tensors of `size` bytes."""
    source, target = (_SERVER, "/job:localhost/device:CPU:0")[:: 1 if way == "pull" else -1]
    with tf.device(source):
        held = [tf.Variable(tf.fill([size // 4], float(i + 1))) for i in range(count)]
    move = channel.pull if way == "pull" else channel.push

    def by_channel(tensor: tf.Tensor) -> tf.Tensor:
        return move(tensor)

    def by_grpc(tensor: tf.Tensor) -> tf.Tensor:
        with tf.device(target):
            return tf.identity(tensor)

    def function(mover: Callable[[tf.Tensor], tf.Tensor]) -> Callable[[], tf.Tensor]:
        @tf.function
        def step() -> tf.Tensor:
            total = tf.zeros([])
            with tf.device(_SERVER):
                total += 1.0
            for variable in held:
                with tf.device(source):
                    tensor = variable.read_value()
                moved = mover(tensor)
                with tf.device(target):
                    total += moved[-1]
            return total

        return step

    return {"channel": function(by_channel), "grpc": function(by_grpc)}


def measure(channel: Channel, way: str, count: int, size: int, repeats: int) -> dict[str, object]:
    """One row: each implementation in turn, `repeats` times after a warm-up."""
    functions = moves(channel, way, count, size)
    expected = 1.0 + count * (count + 1) / 2
    times: dict[str, list[float]] = {name: [] for name in functions}
    for repeat in range(-3, repeats):
        for name, step in functions.items():
            start = time.perf_counter()
            found = step().numpy()
            if repeat >= 0:
                times[name].append(1e3 * (time.perf_counter() - start))
            if found != expected:
                raise RuntimeError(
                    f"{way} of {count} x {size} bytes by {name} brought {found}, not {expected}"
                )
    row: dict[str, object] = {"way": way, "count": count, "bytes": size}
    for name, each in times.items():
        row.update(
            {f"{name}_ms": statistics.median(each), f"{name}_min": min(each), f"{name}_max": max(each)}
        )
    row["ratio"] = statistics.median(times["grpc"]) / statistics.median(times["channel"])
    row["channel_gb_per_s"] = count * size / statistics.median(times["channel"]) / 1e6
    return row


def _print_row(row: dict) -> None:
    print(
        f"| {row['way']} | {row['count']:>3} x {row['bytes']:>10,} "
        f"| {row['channel_ms']:8.3f} ({row['channel_min']:.3f}–{row['channel_max']:.3f}) "
        f"| {row['grpc_ms']:8.3f} ({row['grpc_min']:.3f}–{row['grpc_max']:.3f}) "
        f"| {row['ratio']:6.2f} | {row['channel_gb_per_s']:6.2f} |",
        flush=True,
    )


def _parse(text: str) -> list[tuple[int, int]]:
    return [(int(count), int(size)) for count, _, size in (part.partition("x") for part in text.split(","))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--moves", type=_parse, default=_parse("0x0,1x4096,32x4096,1x8388608,1x67108864"))
    parser.add_argument("--transport", default="auto")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.update(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")
    if arguments.serve:
        return serve(arguments.serve)
    with ReservedPorts(1) as ports:
        address = ports.addresses[0]
        command = [sys.executable, "-m", "benchmarks.channel", "--serve", address]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        late = threading.Timer(_START_SECONDS, server.kill)
        late.start()
        started = server.stdout.readline() if server.stdout else ""
        late.cancel()
        if not started.startswith("serving"):
            raise RuntimeError(f"the server did not start within {_START_SECONDS} s")
        try:
            rows = _run(address, arguments)
        finally:
            server.kill()
            server.wait()
    if arguments.csv:
        arguments.csv.parent.mkdir(parents=True, exist_ok=True)
        with arguments.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, _COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
    return None


def _run(address: str, arguments: argparse.Namespace) -> list[dict[str, object]]:
    tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec({"ps": [address]}))
    channel = Channel.connect(
        _SERVER, name="worker 0", peer=f"ps 0 ({address})", transport=arguments.transport, my_host="127.0.0.1"
    )
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, TensorFlow {tf.__version__}, "
        f"NumPy {np.__version__}, {channel.stats()['transport']}\n"
        "| way | tensors x bytes | channel ms | gRPC ms | gRPC / channel | channel GB/s |\n|---|---|---|---|---|---|"
    )
    rows = []
    for way in ("pull", "push"):
        for count, size in arguments.moves:
            rows.append(measure(channel, way, count, size, arguments.repeats))
            _print_row(rows[-1])
    channel.close()
    return rows


if __name__ == "__main__":
    main()
