"""Finds what must be equal on all tasks and is not: clusters, versions, libraries, TLS, clocks."""

from __future__ import annotations

import statistics
from typing import Dict, Iterator, List, Tuple

from tf_strategies.doctor.findings import Finding
from tf_strategies.doctor.judging.view import View, error, note, warning
from tf_strategies.doctor.records import Report

__all__ = ["find", "offsets"]

_MUST_AGREE = ("tf_strategies", "tensorflow", "keras", "tf_keras")
_SHOULD_AGREE = ("python", "numpy")
# Logs of two hosts cannot be put in order beyond this, and certificates may seem to be of the future.
_SKEW_SECONDS = 0.5
_WRONG_SECONDS = 60.0


def find(view: View) -> Iterator[Finding]:
    """Yields findings about differences between tasks."""
    yield from _clusters(view)
    yield from _versions(view)
    yield from _libraries(view)
    yield from _security(view)
    yield from _clocks(view)
    yield from _drivers(view)


def _clusters(view: View) -> Iterator[Finding]:
    root = view.root
    others = [each for each in view.ordered if each.digest != root.digest]
    if not others:
        return
    other = others[0]
    entries = sorted(set(root.cluster.items()) ^ set(other.cluster.items()))
    task = entries[0][0] if entries else root.task
    yield error(
        "cluster_differs",
        view.plan.names([root.task, *(each.task for each in others)]),
        f"their TF_CONFIG have different clusters: {task} is at {root.cluster.get(task, 'no address')} for {root.task}, and at "
        f"{other.cluster.get(task, 'no address')} for {other.task}",
        'set the same "cluster" on all tasks',
    )


def _versions(view: View) -> Iterator[Finding]:
    without = [each.task for each in view.ordered if not each.facts.versions.get("tensorflow")]
    if without:
        yield error(
            "tensorflow_missing",
            view.plan.names(without),
            "TensorFlow is not installed in the Python of this task",
            "install the same TensorFlow on all hosts, or start the task with the Python that has it",
        )
    reports = [each for each in view.ordered if each.task not in without]
    wrong = [_difference(reports, each, parts=None) for each in _MUST_AGREE]
    if any(wrong):
        yield error(
            "versions_differ",
            view.plan.names([each.task for each in reports]),
            "; ".join(filter(None, wrong)),
            "install the same versions on all hosts, and build the operations for them again",
        )
        return
    doubtful = [_difference(reports, each, parts=2) for each in _SHOULD_AGREE]
    if any(doubtful):
        yield warning(
            "versions_differ",
            view.plan.names([each.task for each in reports]),
            "; ".join(filter(None, doubtful)),
            "install the same versions on all hosts",
        )


def _difference(reports: List[Report], package: str, *, parts: int | None) -> str:
    """Returns who has which version of a package; "" if all have the same.

    Args:
        reports: of all tasks.
        package: as in `Facts.versions`.
        parts: of a version that count; None for all.
    """
    found: Dict[str, str] = {}
    for each in reports:
        version = each.facts.versions.get(package) or "none"
        found.setdefault(".".join(version.split(".")[:parts]), each.task)
    if len(found) < 2:
        return ""
    return f"{package} is " + " and ".join(f"{version} on {task}" for version, task in found.items())


def _libraries(view: View) -> Iterator[Finding]:
    for each in view.libraries:
        if each.is_late:
            yield note(
                "not_measured",
                view.plan.name(each.task),
                f"it is not known whether the operations load: {each.error}",
                "run tfs-doctor again: the files of TensorFlow are in memory then; or give it more time by --wait 60",
            )
        elif each.error:
            yield error(
                "library_broken",
                view.plan.name(each.task),
                f"the operations do not load: {each.error}",
                "build them for the TensorFlow of this host: pip install . in the source tree of tf_strategies",
            )


def _security(view: View) -> Iterator[Finding]:
    for report in view.ordered:
        where = view.plan.name(report.task)
        if report.facts.secret_error:
            yield error(
                "secret_unusable",
                where,
                report.facts.secret_error,
                "correct it on this host (docs/security.md)",
            )
        if report.facts.tls_error:
            yield error(
                "tls_unusable", where, report.facts.tls_error, "correct it on this host (docs/security.md)"
            )
    found: Dict[str, str] = {}
    for report in view.ordered:
        if not report.facts.tls_error:
            found.setdefault(report.facts.tls, report.task)
    if len(found) > 1:
        text = " and ".join(
            f"{task} {'trusts the authority ' + each if each else 'has no TLS'}"
            for each, task in found.items()
        )
        yield error(
            "tls_differs",
            view.plan.names(list(found.values())),
            text,
            "set TF_STRATEGIES_TLS on all tasks to certificates of one authority, or on none",
        )
    bare = [each.task for each in view.ordered if not each.facts.has_secret and not each.facts.secret_error]
    if bare and view.plan.is_reachable:
        yield warning(
            "no_secret",
            view.plan.names(bare),
            "no secret is set, so whoever reaches the ports can join the job or end it",
            "set TF_STRATEGIES_SECRET_FILE on all tasks (docs/security.md)",
        )


def offsets(view: View) -> Dict[str, float]:
    """Returns how far the clock of each task is ahead of the usual one, in seconds; nothing if there is one host.

    The usual one is the median of the hosts. Clocks are compared with the root's, over tasks in between where it must be.
    """
    ahead = {view.plan.task: 0.0}
    waiting = [view.plan.task]
    while waiting:
        source = waiting.pop(0)
        for task, offset in _seen_from(view, source):
            if task not in ahead:
                ahead[task] = ahead[source] + offset
                waiting.append(task)
    hosts = {view.reports[task].facts.host: by for task, by in ahead.items()}
    if len(hosts) < 2:
        return {}
    usual = statistics.median_low(hosts.values())
    return {task: by - usual for task, by in ahead.items()}


def _seen_from(view: View, source: str) -> Iterator[Tuple[str, float]]:
    """Yields the tasks that were connected with one, and how far their clocks are ahead of its clock."""
    for task, probe in view.reports[source].probes.items():
        if probe.control == "ok" and task in view.reports:
            yield task, probe.offset
    for report in view.ordered:
        if source in report.probes and report.probes[source].control == "ok":
            yield report.task, -report.probes[source].offset


def _clocks(view: View) -> Iterator[Finding]:
    wrong = {task: by for task, by in offsets(view).items() if abs(by) > _SKEW_SECONDS}
    if not wrong:
        return
    make = error if max(map(abs, wrong.values())) > _WRONG_SECONDS else warning
    listed = ", ".join(
        f"{task} is {abs(wrong[task]):.1f} s {'ahead of' if wrong[task] > 0 else 'behind'} the others"
        for task in sorted(wrong, key=view.plan.place)[:4]
    )
    yield make(
        "clock_skew",
        view.plan.names(list(wrong)),
        f"the clocks differ: {listed}",
        "let chrony or systemd-timesyncd set the clock of each host; certificates and logs need right clocks",
    )


def _drivers(view: View) -> Iterator[Finding]:
    drivers: Dict[str, str] = {}
    counts: Dict[int, str] = {}
    for reports in view.by_host().values():
        first = reports[0]
        if first.facts.gpu_error:
            yield warning(
                "gpu_driver",
                view.plan.name(first.task),
                first.facts.gpu_error,
                "install or repair the driver of NVIDIA on this host, or hide the GPUs by CUDA_VISIBLE_DEVICES=",
            )
            continue
        counts.setdefault(len(first.facts.gpus), first.task)
        if first.facts.gpu_driver:
            drivers.setdefault(first.facts.gpu_driver, first.task)
    if len(drivers) > 1:
        yield warning(
            "gpus_differ",
            view.plan.names(list(drivers.values())),
            "the GPU driver is " + " and ".join(f"{each} on {task}" for each, task in drivers.items()),
            "install the same driver on all hosts",
        )
    elif len(counts) > 1:
        yield note(
            "gpus_differ",
            view.plan.names(list(counts.values())),
            "hosts have different numbers of GPUs: "
            + ", ".join(f"{n} on {task}" for n, task in counts.items()),
            "nothing, if that is meant",
        )
