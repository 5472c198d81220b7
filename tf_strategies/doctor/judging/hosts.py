"""Finds what a host does not give its tasks: shared memory, descriptors, cores; and proxies in the way."""

from __future__ import annotations

import contextlib
import ipaddress
from typing import Iterator, List

from tf_strategies.doctor.findings import Finding
from tf_strategies.doctor.judging.view import View, error, note, warning
from tf_strategies.doctor.records import Report

__all__ = ["find"]

_SHARED_BYTES = 6 << 20  # for each task; a worker of UCX 1.22 takes 4.3 MB
_FILES, _FILES_FOR_EACH = 128, 8
_PROCESSES = 1024
_LOCKED_BYTES = 64 << 20
_MUCH = 2  # times as many threads as cores


def find(view: View) -> Iterator[Finding]:
    """Yields findings about each host."""
    for reports in view.by_host().values():
        yield from _shared_memory(view, reports)
        yield from _memory_of_others(view, reports)
        yield from _cores(view, reports)
        yield from _threads(view, reports)
        yield from _limits(view, reports)
    yield from _proxies(view)


def _names(view: View, reports: List[Report]) -> str:
    return view.plan.names([each.task for each in reports])


def _shared_memory(view: View, reports: List[Report]) -> Iterator[Finding]:
    if len(reports) < 2:
        return  # they need each other to share it
    broken = [each for each in reports if each.facts.shm_error]
    if broken:
        yield warning(
            "shm_unwritable",
            _names(view, broken),
            f"/dev/shm cannot be used: {broken[0].facts.shm_error}; the tasks of this host use slower ways",
            "mount a tmpfs at /dev/shm that this user may write (chmod 1777 /dev/shm)",
        )
        return
    least = min(reports, key=lambda each: each.facts.shm_free)
    needed = _SHARED_BYTES * len(reports)
    if least.facts.shm_free < needed:
        yield warning(
            "shm_small",
            _names(view, reports),
            f"/dev/shm of host {least.facts.host_name} has {_bytes(least.facts.shm_free)} free of "
            f"{_bytes(least.facts.shm_total)}; {len(reports)} tasks need {_bytes(needed)}",
            "remove files there, or make it larger: docker run --shm-size=1g, or an emptyDir with medium: Memory in Kubernetes",
        )


def _memory_of_others(view: View, reports: List[Report]) -> Iterator[Finding]:
    refused = [
        (report, probe.memory)
        for report in reports
        for probe in report.probes.values()
        if probe.memory not in ("", "ok")
    ]
    if refused:
        tasks = list(dict.fromkeys(report.task for report, _ in refused))
        yield warning(
            "memory_of_others_forbidden",
            view.plan.names(tasks),
            f"it cannot read the memory of other tasks of its host ({refused[0][1]}); shared memory is slower without",
            "run the tasks as one user, with kernel.yama.ptrace_scope=0; in containers add the capability SYS_PTRACE",
        )


def _cores(view: View, reports: List[Report]) -> Iterator[Finding]:
    facts = [each.facts for each in reports]
    usable = len(set().union(*(each.cores for each in facts)))
    online = facts[0].cores_of_host
    quota = min((each.quota for each in facts if each.quota), default=0.0)
    few = min(usable, quota) if quota else float(usable)
    if few >= len(reports):
        return
    text = f"{len(reports)} tasks share {few:g} of the {online} cores of host {facts[0].host_name}"
    if few < online:
        yield warning(
            "cores_pinned",
            _names(view, reports),
            text,
            "give them more cores: see taskset, numactl, --cpus of the container, or --cpus-per-task of SLURM",
        )
    else:
        yield note(
            "cores_few", _names(view, reports), text, "start at most one task for each core, if speed matters"
        )


def _threads(view: View, reports: List[Report]) -> Iterator[Finding]:
    usable = len(set().union(*(each.facts.cores for each in reports)))
    most = max(_threads_of(each, usable) for each in reports)
    if len(reports) > 1 and most * len(reports) > _MUCH * max(usable, len(reports)):
        yield warning(
            "threads_many",
            _names(view, reports),
            f"{len(reports)} tasks start up to {most} threads each, and may use {usable} cores together",
            f"set OMP_NUM_THREADS, TF_NUM_INTRAOP_THREADS and TF_NUM_INTEROP_THREADS to {max(1, usable // len(reports))}, as "
            "tfs-run does",
        )


def _threads_of(report: Report, usable: int) -> int:
    """Returns the threads that a task computes with: one for each core where nothing is set."""
    given = [text for name, text in report.facts.threads.items() if name != "TF_NUM_INTEROP_THREADS"]
    counts = (int(text[:6]) if text.isdecimal() and int(text[:6]) > 0 else usable for text in given)
    return max(counts, default=usable)


def _limits(view: View, reports: List[Report]) -> Iterator[Finding]:
    files = _FILES + _FILES_FOR_EACH * len(view.plan.tasks)
    few = [each for each in reports if 0 <= each.facts.open_files < files]
    if few:
        yield error(
            "open_files_few",
            _names(view, few),
            f"a process may open {few[0].facts.open_files} files and connections, and the job needs up to {files}",
            "raise the limit: ulimit -n 65536, LimitNOFILE= of systemd, or /etc/security/limits.conf",
        )
    locked = [
        each for each in reports if each.facts.has_rdma and 0 <= each.facts.locked_memory < _LOCKED_BYTES
    ]
    if locked:
        yield warning(
            "locked_memory_low",
            _names(view, locked),
            f"a process may lock {_bytes(locked[0].facts.locked_memory)} of memory, which RDMA needs more of",
            "raise the limit: ulimit -l unlimited",
        )
    tight = [each for each in reports if not each.facts.is_root and 0 <= each.facts.processes < _PROCESSES]
    if tight:
        yield warning(
            "processes_few",
            _names(view, tight),
            f"this user may have {tight[0].facts.processes} processes and threads, and a task starts more than a hundred",
            "raise the limit: ulimit -u 65536",
        )


def _proxies(view: View) -> Iterator[Finding]:
    """Yields a finding if gRPC of TensorFlow's servers would go through a proxy. Workers alone do not use one."""
    if not any(task.startswith("ps ") for task in view.plan.tasks):
        return
    for report in view.ordered:
        named = [name for name in ("grpc_proxy", "https_proxy", "http_proxy") if name in report.facts.proxies]
        exempt = ",".join(report.facts.proxies.get(name, "") for name in ("no_grpc_proxy", "no_proxy"))
        hosts = [view.plan.host_of(task) for task in view.plan.tasks]
        caught = [host for host in hosts if not any(_covers(each, host) for each in exempt.split(","))]
        protected = report.facts.has_secret or report.facts.tls
        if named and caught and not (protected and view.plan.is_reachable):
            yield warning(
                "proxy",
                view.plan.name(report.task),
                f"{named[0]}={report.facts.proxies[named[0]]} catches the connections to parameter servers, such as {caught[0]}",
                f"unset it, or set no_grpc_proxy={','.join(dict.fromkeys(hosts))[:200]}",
            )


def _covers(exempt: str, host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host) in ipaddress.ip_network(exempt.strip(), strict=False)
    suffix = exempt.strip().lstrip("*")
    return suffix != "" and host.endswith(suffix)


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"
