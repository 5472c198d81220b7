"""All-reduce: the core and the TensorFlow op against what else there is, in one run, in turn.

    make tools bench-peers
    .venv/peers/bin/python -m benchmarks.allreduce [--workers 2,3,4,6] [--bytes 1024,...,67108864] [--wires shared_memory,tcp]
        [--starts 3] [--rounds 1] [--contestants core,op,...] [--folder out/allreduce]

Contestants, float32 sum, one process a rank on this machine:

- `core`, `core_ring` and so on: the C++ core without TensorFlow, `auto` and each algorithm; in place. `core_again` is `core`
  once more, in processes of its own: what differs between the two is chance.
- `op`: ours in TensorFlow. `ring`: MultiWorkerMirroredStrategy. `horovod`: Horovod with Gloo. All calls of a measurement are
  a loop inside one tf.function; a process has one intra-op and one inter-op thread.
- `gloo`: Gloo through torch.distributed. `openmpi`: Open MPI through mpi4py, its algorithm as it chooses; `openmpi_ring`: with
  its ring. In place, a loop in Python.

For each wire and number of workers all of them are up at once. For each size every one warms up, its sum is checked, and a
first measurement says how many calls take 0.15 s (3 to 2000). Then, `--rounds` times, each measures once while the others
sleep, another one first in every round. All that is done `--starts` times with processes newly started, for the same program
can be faster in one process than in another; medians are of all. All ranks of a group start together; times are rank 0's.
Horovod's processes are stopped between their turns, since its threads wake every millisecond (HOROVOD_CYCLE_TIME as it comes);
what all take while they wait is printed. Last, processes started anew do the largest size alone, for their memory.

Wires: `shared_memory` is what each uses by itself on one host: for `ring`, `horovod` and `gloo`, which know no other, TCP on
loopback. `tcp`: ours with transport="tcp", Open MPI with its TCP alone, the others as before. On both Open MPI has its `ob1`
and one transport (UCX would be ours), and yields where there are more ranks than cores.

benchmarks/limits.py has the limits, benchmarks/contestant.py what counts as memory, benchmarks/allreduce_report.py the
targets. Contestants that are missing here are named and left out. In the folder: allreduce.csv, written as each number of
workers is done, allreduce.md and a plot for each wire. Takes 40 minutes with everything; Ctrl-C ends it with what there is.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Sequence

from benchmarks import allreduce_report, ending, limits
from benchmarks.allreduce_contestants import CONTESTANTS, WIRES
from benchmarks.contest import FEWEST_CALLS, Group, GroupError, Measured, contest
from tf_strategies.launcher.ports import ReservedPorts

_BYTES = tuple(1024 * 4**step for step in range(9))
_MOST_WORKERS = 64
_LIMIT = "copy"


class Sweep:
    """All points in turn; rows go to the CSV file as they come.

    Attributes:
        rows: so far.
        failures: of contestants that fell out, in words.
    """

    def __init__(self, names: Sequence[str], options: argparse.Namespace) -> None:
        self.rows: list[dict] = []
        self.failures: list[str] = []
        self._names = names
        self._options = options
        self._done = 0
        self._total = len(options.wires) * len(options.workers) * options.starts * len(options.bytes)
        self._started = time.monotonic()

    def run(self, path: Path) -> None:
        """Measures everything."""
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(allreduce_report.COLUMNS))
            writer.writeheader()
            for wire in self._options.wires:
                bandwidth = _tcp_bandwidth() if wire == "tcp" else None
                for workers in self._options.workers:
                    found: dict[int, dict[str, Measured]] = {size: {} for size in self._options.bytes}
                    extra: dict[str, int] = {}
                    try:
                        for start in range(self._options.starts):
                            self._measure(wire, workers, start, found)
                        extra = self._weigh(wire, workers)
                    finally:
                        rows = self._rows(wire, workers, found, bandwidth)
                        for row in rows:
                            row["extra_bytes"] = (
                                extra.get(row["contestant"]) if row["bytes"] == max(found) else None
                            )
                        self.rows += rows
                        writer.writerows(rows)
                        file.flush()

    @staticmethod
    def _rows(
        wire: str, workers: int, found: dict[int, dict[str, Measured]], bandwidth: float | None
    ) -> list[dict]:
        rows = []
        for size, measured in found.items():
            if bandwidth is not None:
                limit = limits.tcp_limit(size, workers, bandwidth, os.cpu_count() or 1)
            else:
                limit = _median(measured, _LIMIT) if wire == "shared_memory" else None
            rows += allreduce_report.rows_of(wire, workers, size, measured, limit)
        return rows

    def _measure(self, wire: str, workers: int, start: int, found: dict[int, dict[str, Measured]]) -> None:
        """Adds what processes of their own measure to what was found before."""
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            groups = self._start(stack, folder, wire, workers)
            for size, measured in found.items():
                rounds = self._options.rounds
                now, failed = contest(groups, size, rounds, known=measured, first=start * rounds)
                for name, error in failed.items():
                    self._fell_out(wire, workers, error)
                    groups = [group for group in groups if group.name != name]
                for name, each in now.items():
                    measured[name] = measured[name] + each if name in measured else each
                self._tell(wire, workers, start, size, now)
            idle = (f"{group.name} {group.idle_share:.1%}" for group in groups)
            print(f"  of one core, while it was others' turn: {', '.join(idle)}", flush=True)

    def _weigh(self, wire: str, workers: int) -> dict[str, int]:
        """By name the memory that the largest message takes, in processes that have had no other: malloc keeps what is freed."""
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            extra = {}
            for group in self._start(stack, folder, wire, workers):
                try:
                    extra[group.name] = group.order(max(self._options.bytes), FEWEST_CALLS).extra_bytes
                except GroupError as error:
                    self._fell_out(wire, workers, error)
            return extra

    def _start(self, stack: contextlib.ExitStack, folder: Path, wire: str, workers: int) -> list[Group]:
        """Starts all at once, and leaves out whom that fails."""
        groups = []
        for name in self._names:
            contestant = CONTESTANTS[name]
            ports = stack.enter_context(ReservedPorts(workers))
            commands = contestant.commands(wire, workers, folder / name, ports.addresses)
            group = Group(name, commands, workers, folder / name, stops=contestant.stops)
            groups.append(stack.enter_context(group))
        up = []
        for group in groups:
            try:
                group.start()
                up.append(group)
            except GroupError as error:
                self._fell_out(wire, workers, error)
        return up

    def _fell_out(self, wire: str, workers: int, error: GroupError) -> None:
        self.failures.append(f"{wire}, P={workers}: {error}")
        print(f"  left out: {self.failures[-1]}", flush=True)

    def _tell(self, wire: str, workers: int, start: int, size: int, measured: dict[str, Measured]) -> None:
        self._done += 1
        left = (time.monotonic() - self._started) / self._done * (self._total - self._done)
        times = ", ".join(
            f"{name} {1e3 * _median(measured, name):.3g}" for name in measured if name != _LIMIT
        )
        place = f"{wire} P={workers} start {start + 1} {size:,} bytes"
        print(f"{place}: {times} ms; about {left / 60:.0f} min left", flush=True)


def _median(measured: dict[str, Measured], name: str) -> float | None:
    return statistics.median(measured[name].seconds) if name in measured else None


def _tcp_bandwidth() -> float | None:
    try:
        found = limits.tcp_bytes_per_second()
    except limits.LimitError as error:
        print(f"no limit for TCP: {error}", flush=True)
        return None
    print(f"one stream of TCP on lo (ucx_perftest, 1 MB): {found / 1e9:.2f} GB/s", flush=True)
    return found


def _present(wanted: Sequence[str]) -> list[str]:
    """Those that can take part here; says why others cannot."""
    present = []
    for name in wanted:
        reason = CONTESTANTS[name].missing()
        if reason:
            print(f"without {name}: {reason}")
        else:
            present.append(name)
    return present


def _integers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _names(text: str) -> list[str]:
    return text.split(",")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=_integers, default=[2, 3, 4, 6])
    parser.add_argument("--bytes", type=_integers, default=list(_BYTES))
    parser.add_argument("--wires", type=_names, default=list(WIRES))
    parser.add_argument("--starts", type=int, default=3, help="of new processes")
    parser.add_argument("--rounds", type=int, default=1, help="with each start")
    parser.add_argument(
        "--contestants", type=_names, default=[name for name in CONTESTANTS if name != _LIMIT]
    )
    parser.add_argument("--folder", type=Path, default=Path("out/allreduce"))
    options = parser.parse_args(arguments)
    for wrong, expected in (
        (
            [each for each in options.workers if not 2 <= each <= _MOST_WORKERS],
            f"--workers are 2 to {_MOST_WORKERS}",
        ),
        ([each for each in options.bytes if each < 4 or each % 4], "--bytes are multiples of 4"),
        ([each for each in options.wires if each not in WIRES], f"--wires are of {', '.join(WIRES)}"),
        (
            [each for each in options.contestants if each not in CONTESTANTS],
            f"--contestants are of {', '.join(CONTESTANTS)}",
        ),
        ([options.starts] if options.starts < 1 else [], "--starts is 1 at least"),
        ([options.rounds] if options.rounds < 1 else [], "--rounds is 1 at least"),
        (
            options.contestants if set(options.contestants) == {_LIMIT} else [],
            f"--contestants besides {_LIMIT}, the limit, are needed",
        ),
        (
            [options.folder] if options.folder.exists() and not options.folder.is_dir() else [],
            "--folder is a folder",
        ),
    ):
        if wrong:
            parser.error(f"{expected}; got {', '.join(map(str, wrong))}")
    options.bytes = sorted(set(options.bytes))
    options.workers = sorted(set(options.workers))
    options.wires = list(dict.fromkeys(options.wires))
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {' '.join(sys.argv)}"
    )
    names = _present(dict.fromkeys(options.contestants))
    if not names:
        print("nobody is left to measure", file=sys.stderr)
        return 1
    if not CONTESTANTS[_LIMIT].missing() and _LIMIT not in names:
        names.append(_LIMIT)
    options.folder.mkdir(parents=True, exist_ok=True)
    sweep = Sweep(names, options)
    ending.at_sigterm()
    try:
        sweep.run(options.folder / "allreduce.csv")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    if not sweep.rows:
        return 1
    try:
        written = list(allreduce_report.write_report(sweep.rows, options.folder))
    except ModuleNotFoundError as error:
        written = []
        print(f"no plot: {error}", file=sys.stderr)
    print((options.folder / "allreduce.md").read_text())
    print(f"In {options.folder}: allreduce.csv, {', '.join(path.name for path in written) or 'allreduce.md'}")
    for failure in sweep.failures:
        print(f"left out: {failure}", file=sys.stderr)
    return 1 if sweep.failures else 0


if __name__ == "__main__":
    sys.exit(main())
