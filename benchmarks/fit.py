"""Step time of Keras `fit`: ours against MultiWorkerMirroredStrategy and Horovod, and the step without communication.

    python -m benchmarks.fit [--models mlp,resnet50,embedding] [--workers P,...] [--systems ...] [--folder out/fit]

The models: "mlp" of 15 million weights, batch 32 a worker; "resnet50" on random images of 1000 classes; "embedding", a table of
200,000 rows of 64 with sparse gradients, batch 256. SGD, one thread a process, huge pages (as with tfs-run), data from memory.
The systems:

- ours: `CollectiveAllReduceStrategy`, over shared memory unless `--transport` says otherwise;
- mwms: `tf.distribute.MultiWorkerMirroredStrategy`; Keras 2 only (TensorFlow 2.15, or TF_USE_LEGACY_KERAS=1);
- horovod: `horovod.tensorflow.keras`, in the environment that `make bench-peers` makes: .venv/peers/bin/python -m benchmarks.fit;
- alone: one process that trains the same batch by itself, with the machine for itself;
- side_by_side: P such processes at once, which share the machine and say nothing to each other: the ideal for P workers here.

The processes of all systems stay up and train by turns, one epoch each a round. A round's figure is its time on worker 0 over its
steps; given are the median, least and greatest of the rounds, and the ratio of the medians. Memory is the peak of the worker that
needs most, and what it is beyond side_by_side: of ours it is held against the largest pack. A system that cannot run here is
left out with the reason, and one that takes processor time from others while it waits is named. Writes fit.csv, fit.md and
fit.png (needs matplotlib) to the folder. Takes a quarter of an hour. A process of resnet50 needs 2 GB, so by default P is 2
there.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib.util
import json
import os
import platform
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Iterator, Sequence

from benchmarks import ending, fit_report
from benchmarks.contest import Answer, Command, Group, GroupError
from tf_strategies.launcher.environment import HUGE_PAGES
from tf_strategies.launcher.ports import ReservedPorts
from tf_strategies.options import TRANSPORTS

SYSTEMS = ("ours", "mwms", "horovod", "alone", "side_by_side")
BATCHES = {"mlp": 32, "resnet50": 8, "embedding": 256}
WORKERS = {"mlp": [2, 4], "resnet50": [2], "embedding": [2, 4]}
STEPS = {"mlp": 30, "resnet50": 6, "embedding": 30}
_DENSE = ("mlp", "resnet50")
_PEERS = ("mwms", "horovod")
_SYNCHRONOUS = ("ours", *_PEERS)
_AGREEMENT = 1e-6
_NOTABLE = 0.03
_NO_HOROVOD = "not installed: `make bench-peers`, and run this with .venv/peers/bin/python"
_COLUMNS = (
    "model",
    "batch",
    "workers",
    "system",
    "step_ms",
    "step_min",
    "step_max",
    "over_ours",
    "share_of_ideal",
    "share_of_alone",
    "peak_bytes",
    "extra_bytes",
    "largest_pack",
    "left_out",
)


def measure(model: str, workers: int, arguments: argparse.Namespace) -> list[dict[str, object]]:
    """A row for each system.

    Raises:
        RuntimeError: ours or a process without communication failed, or the workers of a system ended with different weights.
    """
    rounds: dict[str, list[Answer]] = {system: [] for system in arguments.systems}
    left_out: dict[str, str] = {}
    steps = arguments.steps or STEPS[model]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        groups: dict[str, Group] = {}
        for system in arguments.systems:
            if system == "horovod" and importlib.util.find_spec("horovod") is None:
                left_out[system] = _NO_HOROVOD
                continue
            with _leaving_out(system, left_out), contextlib.ExitStack() as undo:
                group = undo.enter_context(_group(system, model, workers, folder / system, arguments, stack))
                group.order(0, 1)
                groups[system] = group
                stack.push(undo.pop_all())
        names = list(groups)
        for number in range(arguments.rounds):
            first = number % max(1, len(names))
            for system in [*names[first:], *names[:first]]:
                if system not in left_out:
                    with _leaving_out(system, left_out):
                        rounds[system].append(groups[system].order(0, steps))
        for system in names:
            if groups[system].idle_share > _NOTABLE:
                print(
                    f"{groups[system].name} took {groups[system].idle_share:.0%} of a core while it waited",
                    file=sys.stderr,
                )
            if system in _SYNCHRONOUS and system not in left_out:
                _require_agreement(system, workers, folder / system)
        pack = int((folder / "ours" / "pack").read_text()) if "ours" in names and model in _DENSE else None
    return _rows(model, arguments.batch or BATCHES[model], workers, rounds, left_out, pack)


@contextlib.contextmanager
def _leaving_out(system: str, left_out: dict[str, str]) -> Iterator[None]:
    try:
        yield
    except GroupError as error:
        if system not in _PEERS:
            raise
        print(error, file=sys.stderr)
        left_out[system] = str(error).strip().splitlines()[-1].replace("|", "/")


def _group(
    system: str,
    model: str,
    workers: int,
    folder: Path,
    arguments: argparse.Namespace,
    stack: contextlib.ExitStack,
) -> Group:
    ranks = 1 if system == "alone" else workers
    addresses = stack.enter_context(ReservedPorts(ranks)).addresses
    commands = []
    for rank in range(ranks):
        argv = [
            sys.executable, "-m", "benchmarks.fit_worker", "--system", system, "--model", model,
            "--batch", str(arguments.batch or BATCHES[model]), "--image-size", str(arguments.image_size),
            "--transport", arguments.transport, "--folder", str(folder), "--rank", str(rank), "--ranks", str(ranks),
        ]  # fmt: skip
        threads = dict.fromkeys(
            ("OMP_NUM_THREADS", "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS"), str(arguments.threads)
        )
        environment = {**threads, **HUGE_PAGES, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
        if system in ("ours", "mwms"):
            task = {"type": "worker", "index": rank}
            environment["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
        commands.append(Command(argv, environment))
    # The threads of Horovod wake all the time. A stopped worker of TensorFlow's strategy would be taken for lost.
    return Group(f"{system} ({model}, P={workers})", commands, ranks, folder, stops=system == "horovod")


def _require_agreement(system: str, workers: int, folder: Path) -> None:
    sums = [float((folder / f"weights.{rank}").read_text()) for rank in range(workers)]
    if not max(sums) - min(sums) <= _AGREEMENT * max(sums):
        raise RuntimeError(
            f"{system}: the weights of the workers differ; the sums of their squares are {sums}"
        )


def _rows(
    model: str,
    batch: int,
    workers: int,
    rounds: dict[str, list[Answer]],
    left_out: dict[str, str],
    largest_pack: int | None,
) -> list[dict[str, object]]:
    medians = {
        system: 1e3 * statistics.median(answer.seconds for answer in each)
        for system, each in rounds.items()
        if system not in left_out
    }
    peaks = {system: max(answer.extra_bytes for answer in rounds[system]) for system in medians}
    ours, ideal, alone = (medians.get(system) for system in ("ours", "side_by_side", "alone"))
    rows: list[dict[str, object]] = []
    for system, answers in rounds.items():
        row: dict[str, object] = dict.fromkeys(_COLUMNS, "")
        row.update(model=model, batch=batch, workers=workers, system=system)
        if system in left_out:
            row["left_out"] = left_out[system]
        else:
            times = [1e3 * answer.seconds for answer in answers]
            row.update(step_ms=medians[system], step_min=min(times), step_max=max(times))
            row["over_ours"] = medians[system] / ours if ours else ""
            row["share_of_ideal"] = ideal / medians[system] if ideal else ""
            row["share_of_alone"] = alone / medians[system] if alone else ""
            row["peak_bytes"] = peaks[system]
            row["extra_bytes"] = peaks[system] - peaks["side_by_side"] if "side_by_side" in peaks else ""
            row["largest_pack"] = largest_pack if system == "ours" and largest_pack else ""
        rows.append(row)
    return rows


def read_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=_names, default=list(BATCHES))
    parser.add_argument(
        "--workers",
        type=lambda text: [int(part) for part in text.split(",")],
        help=f"by default {WORKERS}",
    )
    parser.add_argument("--systems", type=_names, default=list(SYSTEMS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, help=f"measured in a round; by default {STEPS}")
    parser.add_argument("--batch", type=int, help=f"a worker; by default {BATCHES}")
    parser.add_argument("--image-size", type=int, default=224, help="of resnet50")
    parser.add_argument("--threads", type=int, default=1, help="inter-op, intra-op and OpenMP, a process")
    parser.add_argument("--transport", choices=TRANSPORTS, default="auto", help="of ours")
    parser.add_argument("--folder", type=Path, default=Path("out/fit"))
    arguments = parser.parse_args(argv)
    for option, given, known in (
        ("models", arguments.models, BATCHES),
        ("systems", arguments.systems, SYSTEMS),
    ):
        unknown = [name for name in given if name not in known]
        if unknown:
            parser.error(f"--{option} are of {', '.join(known)}; got {', '.join(unknown)}")
    arguments.systems = list(dict.fromkeys(arguments.systems))
    if arguments.workers and min(arguments.workers) < 2:
        parser.error(f"--workers are 2 at least; got {min(arguments.workers)}")
    for option in ("rounds", "steps", "batch", "threads", "image_size"):
        value = getattr(arguments, option)
        if value is not None and value < 1:
            parser.error(f"--{option.replace('_', '-')} is 1 at least; got {value}")
    return arguments


def _names(text: str) -> list[str]:
    return text.split(",")


def main(argv: Sequence[str] | None = None) -> None:
    arguments = read_arguments(argv)
    ending.at_sigterm()
    os.environ.pop("TF_CONFIG", None)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {' '.join(sys.argv)}\n"
    )
    lines = [
        "| model | P | system | ms a step (min–max) | × ours | of side by side | of alone | peak MB, beyond side by side |",
        "|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    rows = []
    for model in arguments.models:
        for workers in arguments.workers or WORKERS[model]:
            for row in measure(model, workers, arguments):
                rows.append(row)
                lines.append(fit_report.table_row(row))
                print(lines[-1], flush=True)
    lines += ["", *fit_report.verdicts(rows)]
    print("\n".join(["", *fit_report.verdicts(rows)]))
    (arguments.folder / "fit.md").write_text("\n".join(lines) + "\n")
    with (arguments.folder / "fit.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    fit_report.plot(rows, arguments.folder / "fit.png")
    print(f"Written: {arguments.folder}/fit.csv, fit.md, fit.png")


if __name__ == "__main__":
    main()
