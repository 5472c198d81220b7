"""Prints what was found: a table with one row for each task, the wires, the findings, and a verdict."""

from __future__ import annotations

from typing import List, Sequence

from tf_strategies.doctor.findings import Finding, Severity
from tf_strategies.doctor.judging.agreement import offsets
from tf_strategies.doctor.judging.pairs import is_wire, megabytes, worst_rate
from tf_strategies.doctor.judging.view import View
from tf_strategies.doctor.records import Facts, Measured, Report

__all__ = ["draw", "summary", "verdict"]

_MOST_ENDS = 8  # with more the matrix is too wide
_HEAD = (
    "task",
    "address",
    "host",
    "TensorFlow",
    "cores",
    "threads",
    "GPUs",
    "interface",
    "/dev/shm",
    "clock",
    "reaches",
    "reached by",
)


def draw(view: View, findings: Sequence[Finding], *, strict: bool = False) -> str:
    """Returns the whole text.

    Args:
        view: what is known of all tasks.
        findings: about it.
        strict: whether warnings count as errors.
    """
    wires = _wires(view)
    lines = [*_table(view), *([""] if wires else []), *wires]
    for finding in findings:
        lines += [
            "",
            f"{finding.severity.word} {finding.code}: {finding.where}",
            f"  {finding.text}",
            f"  -> {finding.remedy}",
        ]
    return "\n".join([*lines, "", verdict(view, findings, strict=strict)])


def verdict(view: View, findings: Sequence[Finding], *, strict: bool = False) -> str:
    """Returns one line: how many findings there are, and whether the job can start."""
    counts = {level: sum(each.severity is level for each in findings) for level in Severity}
    errors, warnings = counts[Severity.ERROR], counts[Severity.WARNING]
    all_tasks = max(len(view.plan.tasks), len(view.reports))
    tasks = f"{len(view.reports)} of {_count(all_tasks, 'task')} on {_count(len(view.by_host()), 'host')}"
    found = ", ".join(
        [*([_count(errors, "error")] if errors else []), *([_count(warnings, "warning")] if warnings else [])]
    )
    if errors or (strict and warnings):
        return f"verdict: {found} on {tasks}: correct that before the job starts"
    if warnings:
        return f"verdict: {found} on {tasks}: the job can start"
    return f"verdict: all is well with {tasks}"


def summary(findings: Sequence[Finding], *, strict: bool) -> int:
    """Returns the exit status: 1 if there are errors, 0 if there are none."""
    worst = max((each.severity for each in findings), default=Severity.NOTE)
    return int(worst >= (Severity.WARNING if strict else Severity.ERROR))


def _table(view: View) -> List[str]:
    clocks = offsets(view)
    rows = [_HEAD, *(_row(view, each, clocks.get(each.task)) for each in view.ordered)]
    missing = [each for each in view.plan.tasks if each not in view.reports]
    rows += [(each, view.plan.addresses[each], "no report", *[""] * (len(_HEAD) - 3)) for each in missing]
    return _columns(rows)


def _row(view: View, report: Report, offset: float | None) -> tuple[str, ...]:
    facts = report.facts
    tasks = view.plan.tasks
    reached = sum(each.control == "ok" for each in report.probes.values())
    by = sum(report.task in each.probes and each.probes[report.task].control == "ok" for each in view.ordered)
    others = len([each for each in tasks if each != report.task])
    return (
        report.task,
        view.plan.addresses.get(report.task, "-"),
        facts.host_name,
        facts.versions.get("tensorflow") or "none",
        f"{facts.quota or len(facts.cores):g}/{facts.cores_of_host}",
        facts.threads.get("OMP_NUM_THREADS") or "-",
        str(len(facts.gpus)),
        _interface(facts),
        f"{facts.shm_free / (1 << 30):.1f} GB" if not facts.shm_error else "none",
        "-" if offset is None else f"{offset * 1000:+.0f} ms",
        f"{reached}/{others}",
        f"{by}/{len(view.ordered) - 1}" if report.task in view.plan.addresses else "-",
    )


def _interface(facts: Facts) -> str:
    """Returns the interface, its MTU and, if it is known, its speed."""
    speed = f" {facts.speed / 1000:g}Gb/s" if facts.speed else ""
    return f"{facts.interface} {facts.mtu}{speed}" if facts.interface else "-"


def _wires(view: View) -> List[str]:
    good = [each for each in view.measured if not each.error]
    wires = [each for each in good if is_wire(view, each)]
    if not wires:
        return [
            f"one host: {megabytes(worst_rate(each))} and {each.seconds * 1e6:.0f} us by the loopback interface; tasks of a "
            "host use shared memory, which is faster"
            for each in good
        ]
    slowest, latest = min(wires, key=worst_rate), max(wires, key=lambda each: each.seconds)
    lines = [
        f"{_count(len(wires), 'wire')} between hosts; the slowest is {slowest.first} - {slowest.second} with "
        f"{megabytes(worst_rate(slowest))}, the longest round trip {latest.first} - {latest.second} with "
        f"{latest.seconds * 1e6:.0f} us"
    ]
    ends = sorted({task for each in wires for task in (each.first, each.second)}, key=view.plan.place)
    return [*lines, *(_matrix(wires, ends) if len(ends) <= _MOST_ENDS else [])]


def _matrix(wires: Sequence[Measured], ends: Sequence[str]) -> List[str]:
    """Returns bandwidths from the row to the column."""
    rates = {(each.first, each.second): each.there for each in wires}
    rates.update({(each.second, each.first): each.back for each in wires})
    rows = [("from \\ to", *ends)]
    for source in ends:
        cells = (rates.get((source, target)) for target in ends)
        rows.append((source, *("-" if rate is None else megabytes(rate) for rate in cells)))
    return _columns(rows)


def _columns(rows: Sequence[Sequence[str]]) -> List[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
