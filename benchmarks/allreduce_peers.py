"""One rank of a contestant of benchmarks.allreduce without TensorFlow: Gloo through PyTorch, or Open MPI through mpi4py."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

from benchmarks.contestant import Calls, serve, total


def serve_gloo(folder: Path, rank: int, ranks: int) -> None:
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)

    def prepare(count: int) -> Calls:
        data = torch.from_numpy(np.full(count, rank + 1, np.float32))
        distributed.all_reduce(data)
        _check(data.numpy(), ranks)
        data.zero_()

        def run(calls: int) -> None:
            for _ in range(calls):
                distributed.all_reduce(data)

        return run

    serve(folder, rank, barrier=distributed.barrier, prepare=prepare)


def serve_mpi(folder: Path) -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD

    def prepare(count: int) -> Calls:
        data = np.full(count, world.rank + 1, np.float32)
        world.Allreduce(MPI.IN_PLACE, data)
        _check(data, world.size)
        data[:] = 0

        def run(calls: int) -> None:
            for _ in range(calls):
                world.Allreduce(MPI.IN_PLACE, data)

        return run

    serve(folder, world.rank, barrier=world.Barrier, prepare=prepare)


def _check(summed: np.ndarray, ranks: int) -> None:
    if not np.all(summed == total(ranks)):
        raise RuntimeError(f"the sum of {summed.size} elements is wrong: {summed}, not {total(ranks)}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("implementation", choices=["gloo", "mpi"])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.implementation == "gloo":
        serve_gloo(arguments.folder, arguments.rank, arguments.ranks)
    else:
        serve_mpi(arguments.folder)


if __name__ == "__main__":
    main()
