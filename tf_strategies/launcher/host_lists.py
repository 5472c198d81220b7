"""Reads lists of hosts with the number of workers of each: as typed, from a file, or from a job scheduler."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Iterable, Iterator, Mapping, NamedTuple

from tf_strategies.addresses import is_loopback, join_address, split_address

AUTO = "auto"


class Slots(NamedTuple):
    """A host and the number of chiefs and workers that it runs.

    Attributes:
        target: the host as ssh knows it, which may begin with "user@".
        workers: the number of processes.
    """

    target: str
    workers: int

    @property
    def host(self) -> str:
        """The host in the addresses of TF_CONFIG."""
        return self.target.rpartition("@")[2]


def slots_of(text: str, environ: Mapping[str, str] = os.environ) -> list[Slots] | None:
    """Returns the hosts that --hosts names, or None if it names hosts without numbers of workers.

    Args:
        text: "a:4,user@b:4"; "@FILE" for a file with a host and its slots in each line; or "auto" for the hosts
            that a job scheduler gave to this job.
        environ: the environment with the variables of the scheduler.

    Raises:
        ValueError: the list cannot be understood, names a host twice, or there is no scheduler.
    """
    if text == AUTO:
        slots = _of_scheduler(environ)
    elif text.startswith("@"):
        slots = _of_file(text[1:])
    else:
        typed = _typed(text)
        if typed is None:
            return None
        slots = typed
    hosts = [each.host for each in slots]
    for each in slots:
        _check(each)
        if len(slots) > 1 and is_loopback(join_address(each.host, 1)):
            raise ValueError(
                f"--hosts has {each.host}, which other hosts cannot reach; write a name or address that they know"
            )
        if each.workers < 1 or hosts.count(each.host) > 1:
            raise ValueError(f"--hosts must name {each.host} once, with at least one worker")
    return slots


def slots_of_lines(lines: Iterable[str], where: str) -> list[Slots]:
    """Returns the hosts of lines such as "host", "host:4" or "host slots=4", each once.

    Args:
        lines: the lines, of which some may name no host.
        where: their origin, for messages.

    Raises:
        ValueError: a line cannot be understood.
    """
    try:
        found = _added_up(each for line in lines for each in _slots_of_line(line))
        for each in found:
            _check(each)
    except ValueError as error:
        raise ValueError(f"{where}: {str(error).removeprefix('--hosts ')}") from None
    return found


def expand_hosts(listed: str) -> list[str]:
    """Returns the nodes of a list of SLURM.

    Example:
        >>> expand_hosts("gpu[08-10,12],login1")
        ['gpu08', 'gpu09', 'gpu10', 'gpu12', 'login1']
    """
    return [host for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", listed) for host in _expand(part)]


def expand_counts(listed: str) -> list[int]:
    """Returns the tasks of each node from a list of SLURM.

    Example:
        >>> expand_counts("4(x2),1")
        [4, 4, 1]
    """
    found = re.findall(r"(\d+)(?:\(x(\d+)\))?", listed)
    return [int(count) for count, times in found for _ in range(int(times or 1))]


def _expand(name: str) -> Iterator[str]:
    bracket = re.search(r"\[([^\]]*)\]", name)
    if bracket is None:
        yield name
        return
    before, after = name[: bracket.start()], name[bracket.end() :]
    for span in bracket.group(1).split(","):
        first, _, last = span.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield from (before + str(number).zfill(len(first)) + rest for rest in _expand(after))


def _typed(text: str) -> list[Slots] | None:
    parts = [part.strip() for part in text.split(",")]
    counted = [part.rpartition(":") for part in parts]
    has_count = [
        bool(host) and (":" not in host or host.endswith("]")) and count.isdigit()
        for host, _, count in counted
    ]
    if not any(has_count):
        return None
    if not all(has_count):
        without = parts[has_count.index(False)]
        raise ValueError(
            f"--hosts has {without!r} without a number of workers; write {without}:N, as for the others"
        )
    return [Slots(_without_brackets(host), int(count)) for host, _, count in counted]


def _of_file(path: str) -> list[Slots]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--hosts @{path}: {error}") from None
    found = _added_up(each for line in lines for each in _slots_of_line(line))
    if not found:
        raise ValueError(f"--hosts @{path}: the file names no host")
    return found


def _slots_of_line(line: str) -> list[Slots]:
    """Returns the slots of "host", "host:4", "host slots=4" or "host 4 ..."; none for a line without a host."""
    words = line.partition("#")[0].split()
    if not words:
        return []
    typed = _typed(words[0])
    if typed is not None:
        return typed
    numbers = [word.removeprefix("slots=") for word in words[1:] if re.fullmatch(r"(slots=)?\d+", word)]
    return [Slots(_without_brackets(words[0]), int(numbers[0]) if numbers else 1)]


def _without_brackets(target: str) -> str:
    return target.replace("[", "").replace("]", "")


def _check(slots: Slots) -> None:
    """Refuses what ssh would take for an option, and what cannot stand in TF_CONFIG."""
    try:
        split_address(join_address(slots.host, 1))
    except ValueError as error:
        raise ValueError(f"--hosts has {slots.target!r}: {error}") from None
    if slots.target.startswith("-"):
        raise ValueError(f"--hosts has {slots.target!r}: the user begins with a dash")


def _added_up(slots: Iterable[Slots]) -> list[Slots]:
    """Returns each host once: schedulers repeat a host for each of its slots."""
    found: dict[str, int] = {}
    for each in slots:
        found[each.target] = found.get(each.target, 0) + each.workers
    return [Slots(target, workers) for target, workers in found.items()]


def _of_scheduler(environ: Mapping[str, str]) -> list[Slots]:
    for variable in ("PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "PE_HOSTFILE", "OMPI_MCA_orte_default_hostfile"):
        if environ.get(variable):
            return _of_file(environ[variable])
    if "LSB_MCPU_HOSTS" in environ:
        words = environ["LSB_MCPU_HOSTS"].split()
        return [Slots(host, int(count)) for host, count in zip(words[::2], words[1::2])]
    if "SLURM_JOB_NODELIST" in environ:
        hosts = expand_hosts(environ["SLURM_JOB_NODELIST"])
        counts = expand_counts(environ.get("SLURM_TASKS_PER_NODE", ""))
        if len(hosts) != len(counts):
            raise ValueError(
                f"--hosts auto: SLURM names {len(hosts)} nodes ({environ['SLURM_JOB_NODELIST']}), but the tasks of "
                f"{len(counts)} (SLURM_TASKS_PER_NODE={environ.get('SLURM_TASKS_PER_NODE', '')})"
            )
        return [Slots(host, count) for host, count in zip(hosts, counts)]
    raise ValueError(
        "--hosts auto: no variable of SLURM, PBS, LSF, Grid Engine or the MPI operator is set here; start tfs-run "
        "in a job, or name the hosts"
    )
