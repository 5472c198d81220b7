"""Groups of processes that are measured in turn, in one run.

A `Group` is the P processes of one implementation, which stay up while all sizes are measured and do what they are told
(benchmarks/contestant.py has the protocol). `contest` lets groups measure a size by turns.

A group that waits for its turn must not take processor time from the others. Most sleep in a read; one whose idle threads
wake all the time is stopped by signal between its turns. What each took while it was not its turn is counted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Iterator, Mapping, Sequence

from benchmarks import ending

__all__ = ["Answer", "Command", "Group", "GroupError", "Measured", "calls_for", "contest"]

FEWEST_CALLS, MOST_CALLS = 3, 2000
_MEASURE_SECONDS = 0.15
_FIRST_BYTES = 1 << 10
_ORDER_SECONDS = 180
_END_SECONDS, _INTERRUPTED_SECONDS = 5, 2
_TICKS = os.sysconf("SC_CLK_TCK")


class GroupError(RuntimeError):
    """A group failed, or did not answer in time; the end of its output is in the message."""


@dataclasses.dataclass(frozen=True)
class Command:
    """A process to start: its command line, and what it has in its environment besides ours."""

    argv: Sequence[str]
    environment: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Answer:
    """Of one order: seconds of a call on rank 0, and the most bytes any rank needed beyond the message."""

    seconds: float
    extra_bytes: int


@dataclasses.dataclass(frozen=True)
class Measured:
    """One size of one group: seconds of a call by round, and how many calls a round."""

    seconds: list[float]
    calls: int

    def __add__(self, later: Measured) -> Measured:
        """Both, as if they were rounds of one."""
        return Measured(self.seconds + later.seconds, later.calls)


class Group:
    """Starts the processes of one contestant; they end with the block.

    Args:
        name: for messages.
        commands: to start. One may start several ranks.
        ranks: how many there are in all.
        folder: an empty folder of its own, for pipes and logs.
        stops: whether its processes are stopped while it is not its turn.

    Attributes:
        idle_share: processor time taken while it was not its turn, as a share of one core.
    """

    def __init__(
        self, name: str, commands: Sequence[Command], ranks: int, folder: Path, *, stops: bool = False
    ) -> None:
        self.name = name
        self._ranks, self._folder, self._stops = ranks, folder, stops
        self._commands = commands
        self._processes: list[subprocess.Popen] = []
        self._orders: list[int] = []
        self._answers = -1
        self._unread = b""
        self._idle_seconds = self._idle_processor = 0.0
        self._rested: tuple[float, float] | None = None

    def __enter__(self) -> Group:
        self._folder.mkdir(parents=True)
        for name in [*(f"orders.{rank}" for rank in range(self._ranks)), "answers"]:
            os.mkfifo(self._folder / name)
        # For reading and writing: so opening waits for nobody. Only this process holds the orders open for writing.
        self._orders = [
            os.open(self._folder / f"orders.{rank}", os.O_RDWR | os.O_CLOEXEC) for rank in range(self._ranks)
        ]
        self._answers = os.open(self._folder / "answers", os.O_RDWR | os.O_CLOEXEC)
        for number, command in enumerate(self._commands):
            with (self._folder / f"{number}.log").open("w") as log:
                self._processes.append(
                    subprocess.Popen(
                        command.argv,
                        env={**os.environ, **command.environment, "TMPDIR": str(self._folder)},
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                        preexec_fn=ending.with_parent,
                    )
                )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._signal(signal.SIGCONT)
        for descriptor in [*self._orders, self._answers]:
            os.close(descriptor)
        self._orders, self._answers = [], -1
        if kind is not None:
            self._signal(
                signal.SIGTERM
            )  # in an order they do not see that the orders have ended; mpirun clears up then
        end = time.monotonic() + (_END_SECONDS if kind is None else _INTERRUPTED_SECONDS)
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0, end - time.monotonic()))
        self._signal(signal.SIGKILL)
        for process in self._processes:
            process.wait()

    @property
    def idle_share(self) -> float:
        return self._idle_processor / self._idle_seconds if self._idle_seconds else 0.0

    def start(self) -> None:
        """Returns when the group is up. Raises as `order`."""
        self.order(_FIRST_BYTES, FEWEST_CALLS)

    def order(self, size: int, calls: int) -> Answer:
        """Has the group run so many calls of so many bytes.

        Raises:
            GroupError: it failed, or did not answer within three minutes. It has been ended then, so as not to disturb others.
        """
        try:
            return self._carry_out(size, calls)
        except GroupError:
            self._signal(signal.SIGKILL)
            raise

    def _carry_out(self, size: int, calls: int) -> Answer:
        if self._rested is not None:
            since, processor = self._rested
            self._idle_seconds += time.monotonic() - since
            self._idle_processor += _processor_seconds(self._pids()) - processor
        self._pause(False)
        for descriptor in self._orders:
            os.write(descriptor, f"{size} {calls}\n".encode())
        answers = self._read_answers(size)
        self._pause(True)
        self._rested = (time.monotonic(), _processor_seconds(self._pids()))
        (first,) = (answer["seconds"] for answer in answers if answer["rank"] == 0)
        return Answer(first, max(answer["extra_bytes"] for answer in answers))

    def _read_answers(self, size: int) -> list[dict]:
        end = time.monotonic() + _ORDER_SECONDS
        lines: list[bytes] = []
        while len(lines) < self._ranks:
            if b"\n" in self._unread:
                line, _, self._unread = self._unread.partition(b"\n")
                lines.append(line)
            elif select.select([self._answers], [], [], 0.5)[0]:
                self._unread += os.read(self._answers, 1 << 16)
            elif any(process.poll() is not None for process in self._processes):
                raise GroupError(f"{self.name} ended while it measured {size:,} bytes:\n{self._log()}")
            elif time.monotonic() > end:
                raise GroupError(
                    f"{self.name} did not answer within {_ORDER_SECONDS} s at {size:,} bytes:\n{self._log()}"
                )
        return [json.loads(line) for line in lines]

    def _log(self) -> str:
        texts = [
            path.read_text(errors="replace").strip()[-1500:] for path in sorted(self._folder.glob("*.log"))
        ]
        return "\n".join(dict.fromkeys(text for text in texts if text))

    def _pids(self) -> list[int]:
        """All that are alive: each process that was started has a session of its own, which its children stay in without it."""
        return _in_sessions({process.pid for process in self._processes})

    def _pause(self, paused: bool) -> None:
        if self._stops:
            self._signal(signal.SIGSTOP if paused else signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def contest(
    groups: Sequence[Group],
    size: int,
    rounds: int,
    *,
    known: Mapping[str, Measured] | None = None,
    first: int = 0,
) -> tuple[dict[str, Measured], dict[str, GroupError]]:
    """Measures a size: in every round each group once, every round another group first.

    Before the first round each warms up, and says how long a call takes, from which follows how many make a measurement.

    Args:
        known: what groups of the same names measured before: as many calls make a measurement again.
        first: which group begins.

    Returns:
        By name what was measured, and why the others failed.
    """
    failed: dict[str, GroupError] = {}
    calls: dict[str, int] = {}
    seconds: dict[str, list[float]] = {group.name: [] for group in groups}
    for group in groups:
        with _noting_failure(group, failed):
            group.order(size, FEWEST_CALLS)  # what is done but once, when such messages are met first
            before = (known or {}).get(group.name)
            calls[group.name] = before.calls if before else _calibrate(group, size)
    for number in range(first, first + rounds):
        first = number % max(1, len(groups))
        for group in [*groups[first:], *groups[:first]]:
            if group.name not in failed:
                with _noting_failure(group, failed):
                    seconds[group.name].append(group.order(size, calls[group.name]).seconds)
    measured = {name: Measured(each, calls[name]) for name, each in seconds.items() if name not in failed}
    return measured, failed


def calls_for(seconds: float) -> int:
    """How many calls that take so long make one measurement: of 0.15 s, but no fewer than 3 and no more than 2000."""
    return max(FEWEST_CALLS, min(MOST_CALLS, round(_MEASURE_SECONDS / max(seconds, 1e-9))))


def _calibrate(group: Group, size: int) -> int:
    calls = FEWEST_CALLS
    while True:
        wanted = calls_for(group.order(size, calls).seconds)
        if wanted <= 2 * calls:
            return wanted
        calls = wanted


@contextlib.contextmanager
def _noting_failure(group: Group, failed: dict[str, GroupError]) -> Iterator[None]:
    try:
        yield
    except GroupError as error:
        failed[group.name] = error


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on; none where the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _in_sessions(leaders: set[int]) -> list[int]:
    pids = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if (fields := _stat(pid)) and int(fields[3]) in leaders]


def _processor_seconds(pids: Sequence[int]) -> float:
    return sum(float(fields[11]) + float(fields[12]) for pid in pids if (fields := _stat(pid))) / _TICKS
