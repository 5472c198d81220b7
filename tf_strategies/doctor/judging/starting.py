"""Finds tasks that are missing, twice there, or cannot listen."""

from __future__ import annotations

from typing import Iterator, List

from tf_strategies.doctor.findings import Finding
from tf_strategies.doctor.judging.view import View, error, warning
from tf_strategies.doctor.records import Report

__all__ = ["find"]

_SLOW_SECONDS = 2.0


def find(view: View) -> Iterator[Finding]:
    """Yields findings about tasks by themselves."""
    yield from _twins(view)
    yield from _missing(view)
    for report in view.ordered:
        yield from _listening(view, report)
        yield from _names(view, report)
    yield from _names_that_differ(view)


def without_reason(view: View) -> List[Finding]:
    """Returns a finding about tasks that have sent no report, for when no other error says why."""
    missing = [each for each in view.plan.tasks if each not in view.reports]
    if not missing:
        return []
    remedy = "see if it was started, and what it has printed; then run tfs-doctor again"
    return [
        error(
            "report_missing",
            view.plan.names(missing),
            f"it sent no report: {_text(view, missing[0])}",
            remedy,
        )
    ]


def _twins(view: View) -> Iterator[Finding]:
    for task, others in view.twins().items():
        yield error(
            "duplicate_task",
            view.plan.name(task),
            f"several processes are this task: also {', '.join(others)}",
            'give each process its own "index" in the "task" of TF_CONFIG',
        )


def _missing(view: View) -> Iterator[Finding]:
    missing = [each for each in view.plan.tasks if each not in view.reports]
    # A process that takes another's index leaves its own empty.
    explained = sum(map(len, view.twins().values()))
    kinds = {task: _kinds(view, task) for task in missing}
    for task in [each for each in missing if each in view.alive and "ok" in kinds[each]]:
        yield error(
            "report_missing",
            view.plan.name(task),
            "it was connected, and sent no report in time",
            "see if its process still runs and answers (py-spy dump, dmesg), then run tfs-doctor again",
        )
    gone = [each for each in missing if not (each in view.alive and "ok" in kinds[each])]
    refused = [each for each in gone if kinds[each] <= {"refused", "closed"} and kinds[each]]
    if len(refused) > explained:
        yield error(
            "not_started",
            view.plan.names(refused),
            "nothing listens there: every attempt to connect was refused",
            "start tfs-doctor there, or see its log if it has ended; raise --wait if tasks start at different times",
        )
    silent = [each for each in gone if kinds[each] & {"silent", "unreachable", "other", "forbidden"}]
    silent = [
        each
        for each in silent
        if not kinds[each] & {"secret", "stranger", "mute", "wrong_task", "unresolved"}
    ]
    if silent:
        yield error(
            "not_reached",
            view.plan.names(silent),
            f"nobody reaches it, and it reaches nobody: {_text(view, silent[0])}",
            "see if the host is up and its address in TF_CONFIG is right, and let the firewall pass TCP to that port in both "
            "directions",
        )
    yield from _strangers(view, gone)


def _strangers(view: View, gone: List[str]) -> Iterator[Finding]:
    """Yields findings about tasks at whose address something else answers."""
    end_it = "end the program that uses the port, or choose another port"
    codes = {
        "stranger": ("other_program", end_it),
        "mute": ("other_program", f"{end_it}; a doctor that is stopped does not answer, either"),
        "wrong_task": ("wrong_task", "correct the addresses in TF_CONFIG, or the task's index"),
    }
    for task in gone:
        found = next((kind for kind in codes if _text_of_kind(view, task, kind)), None)
        if found is not None:
            code, remedy = codes[found]
            yield error(code, view.plan.name(task), _text_of_kind(view, task, found), remedy)


def _kinds(view: View, task: str) -> set[str]:
    return {
        report.probes[task].control
        for report in view.ordered
        if task in report.probes and report.listens in ("ok", "taken")
    }


def _text(view: View, task: str) -> str:
    texts = [each.probes[task].control_text for each in view.ordered if task in each.probes]
    return next(filter(None, texts), "no connection")


def _text_of_kind(view: View, task: str, kind: str) -> str:
    probes = [each.probes[task] for each in view.ordered if task in each.probes]
    return next((each.control_text for each in probes if each.control == kind), "")


def _listening(view: View, report: Report) -> Iterator[Finding]:
    where = view.plan.name(report.task)
    if report.listens == "taken" and report.task not in report.twins:
        yield error(
            "port_taken",
            where,
            f"it cannot listen: {report.listens_text}",
            "end that process (an earlier run, or a second process with this index), or choose another port in TF_CONFIG",
        )
    elif report.listens in ("not_here", "other") and report.task not in report.twins:
        yield error(
            "address_not_here",
            where,
            f"it runs on host {report.facts.host_name} and cannot listen: {report.listens_text}",
            'correct its address in "cluster", or the "index" of its "task", in TF_CONFIG',
        )
    if report.data_listens and report.listens == "ok":
        yield error(
            "data_port_unavailable",
            where,
            f"it has no port for data: {report.data_listens}",
            "let TF_STRATEGIES_PORTS name at least one free port for each worker of a host, such as 40000-40100",
        )


def _names(view: View, report: Report) -> Iterator[Finding]:
    where = view.plan.name(report.task)
    hidden = view.is_hidden(report)
    mine = view.plan.host_of(report.task) if report.task in view.plan.addresses else ""
    if hidden:
        loop = report.facts.names[mine].addresses[0]
        yield error(
            "name_is_loopback",
            where,
            f"its own name {mine} resolves to {loop} on host {report.facts.host_name}, where no other host reaches it",
            f"remove {mine} from the line of {loop} in /etc/hosts there, or write the IP address in TF_CONFIG",
        )
    for name, found in report.facts.names.items():
        if found.error and not _resolved_later(view, report, name):
            yield error(
                "name_unresolved",
                where,
                f"the host name {name} does not resolve on host {report.facts.host_name}: {found.error}",
                "correct the name in TF_CONFIG, add it to DNS or /etc/hosts, or write the IP address",
            )
        elif not found.error and found.seconds > _SLOW_SECONDS:
            yield warning(
                "dns_slow",
                where,
                f"the host name {name} took {found.seconds:.1f} s to resolve on host {report.facts.host_name}",
                "see /etc/resolv.conf for name servers that do not answer, or write the IP address in TF_CONFIG",
            )
        elif name != mine and view.plan.several_hosts and name != "localhost" and not name.startswith("127."):
            loops = [each for each in found.addresses if each.startswith("127.")]
            if loops and len(loops) == len(found.addresses) and not _reaches(view, report, name):
                yield error(
                    "name_is_loopback",
                    where,
                    f"the name {name} of another host resolves to {loops[0]} on host {report.facts.host_name}",
                    f"remove {name} from the line of {loops[0]} in /etc/hosts there, or write the IP address in TF_CONFIG",
                )


def _resolved_later(view: View, report: Report, name: str) -> bool:
    """Returns True if a task has used a name that did not resolve at first, as names of new pods do not."""
    if report.task in view.plan.addresses and name == view.plan.host_of(report.task):
        return report.listens == "ok"
    return _reaches(view, report, name)


def _reaches(view: View, report: Report, name: str) -> bool:
    """Returns True if a task has reached one at a host of this name."""
    reached = [task for task, probe in report.probes.items() if probe.control == "ok"]
    return any(view.plan.host_of(task) == name for task in reached if task in view.plan.addresses)


def _names_that_differ(view: View) -> Iterator[Finding]:
    answers: dict[str, dict[tuple[str, ...], str]] = {}
    for report in view.ordered:
        for name, found in report.facts.names.items():
            if found.addresses and not all(
                each.startswith("127.") or each == "::1" for each in found.addresses
            ):
                answers.setdefault(name, {}).setdefault(tuple(found.addresses), report.task)
    for name, by_answer in answers.items():
        several = list(by_answer.items())
        if len(several) > 1 and not set(several[0][0]) & set(several[1][0]):
            (first, one), (second, other) = several[:2]
            yield warning(
                "name_differs",
                view.plan.names([one, other]),
                f"the host name {name} is {', '.join(first)} for {one} and {', '.join(second)} for {other}",
                "let all hosts use the same DNS and the same lines in /etc/hosts, or write IP addresses in TF_CONFIG",
            )
