"""The command `tfs-trace`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Iterator, Sequence

from tf_strategies.slow_worker import advice
from tf_strategies.trace.chrome import events
from tf_strategies.trace.group import Recorded
from tf_strategies.trace.record import RecordError, read_folder

__all__ = ["main", "report"]

_MOST_UNFINISHED = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        arguments: the arguments, by default those of the process.

    Returns:
        The exit status: 0, or 2 if there are no records that can be read.
    """
    parser = argparse.ArgumentParser(
        prog="tfs-trace",
        description="Shows the last collectives of the workers of a group: who waited for whom, and a trace to look at.",
        epilog="Workers write records when their group fails, and also at the end if TF_STRATEGIES_RECORDS names a folder. "
        "Open the trace at https://ui.perfetto.dev or in chrome://tracing.",
    )
    parser.add_argument("folder", type=Path, help="the folder with the files of all workers")
    parser.add_argument(
        "-o", "--output", type=Path, help="where to write the trace; default: FOLDER/trace.json"
    )
    chosen = parser.parse_args(arguments)
    output = chosen.output or chosen.folder / "trace.json"
    try:
        recorded = Recorded(read_folder(chosen.folder))
        output.write_text(json.dumps({"traceEvents": list(events(recorded)), "displayTimeUnit": "ms"}))
    except (RecordError, OSError) as error:
        print(f"tfs-trace: {error}", file=sys.stderr)
        return 2
    print("\n".join(report(recorded)))
    print(f"the trace is in {output}: open it at https://ui.perfetto.dev")
    return 0


def report(recorded: Recorded) -> Iterator[str]:
    """Yields the lines of a summary.

    Args:
        recorded: the records of a group.
    """
    failures = {record.failure for record in recorded.records if record.failure}
    yield from (f"the group failed: {failure}" for failure in sorted(failures))
    if recorded.missing:
        yield f"no record of {', '.join(recorded.missing)}: if there is one on its host, copy it to the others"
    yield from _clocks(recorded)
    yield from _unfinished(recorded)
    if not recorded.meetings:
        yield "there is no collective that all workers have recorded"
        return
    summary = recorded.summary()
    yield f"{len(recorded.meetings)} collectives of all workers in {recorded.seconds():.3f} s:"
    width = max(len(each.name) for each in summary)
    yield f"  {'':<{width}}  waited  delayed others  on the wire  hidden"
    for each in summary:
        hidden = "-" if each.hidden is None else f"{each.hidden:.0%}"
        yield f"  {each.name:<{width}}{each.waited:>8.0%}{each.delayed:>16.0%}{each.wire:>13.0%}{hidden:>8}"
    if all(alignment.error_ns >= 0 for alignment in recorded.alignments):
        yield _verdict(recorded)
    slow_wire = recorded.slow_wire()
    if slow_wire is not None:
        yield slow_wire.describe(recorded.records[0].names)


def _verdict(recorded: Recorded) -> str:
    summary = recorded.summary()
    slowest = recorded.slowest(summary)
    if slowest is not None:
        worst = summary[slowest]
        before_steps = None if worst.delayed_steps is None else worst.delayed_steps / worst.delayed
        return (
            f"{worst.name} is the slowest: the others waited for it for {worst.delayed:.0%} of the time"
            f"{advice(before_steps)}"
        )
    wire = sum(each.wire for each in summary) / len(summary)
    if wire >= 0.5:
        return f"no worker is slower than the others; the wire is in use for {wire:.0%} of the time"
    return "no worker is much slower than the others"


def _clocks(recorded: Recorded) -> Iterator[str]:
    for position, alignment in enumerate(recorded.alignments):
        if alignment.error_ns < 0:
            yield f"the clock of {recorded.name(position)} could not be compared: its times are not aligned"
        elif alignment.error_ns > 0:
            yield f"the clock of {recorded.name(position)} is aligned to {alignment.error_ns / 1e6:.3f} ms"


def _unfinished(recorded: Recorded) -> Iterator[str]:
    found = sorted(recorded.unfinished(), key=lambda each: -each[2])
    for position, collective, seconds, without in found[:_MOST_UNFINISHED]:
        missing = f"; {', '.join(without)} had not submitted it" if without else ""
        names = recorded.records[position].names
        among = f" of {', '.join(names[rank] for rank in collective.ranks)}" if collective.ranks else ""
        yield (
            f"{recorded.name(position)} waited {seconds:.3f} s in {collective.kind} '{collective.name}'{among}{missing}"
        )
    if len(found) > _MOST_UNFINISHED:
        yield f"and {len(found) - _MOST_UNFINISHED} more"
