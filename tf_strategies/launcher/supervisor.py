"""Starts processes, relays output and signals, and ends all processes when one fails."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import selectors
import signal
import sys
import time
from types import FrameType
from typing import Callable, Iterator, NamedTuple, NoReturn, Protocol, Sequence

from tf_strategies.launcher.cluster_plan import TRAINING_ROLES
from tf_strategies.launcher.output import LineWriter
from tf_strategies.launcher.process import LaunchedProcess, adopt_orphans, kill_orphans
from tf_strategies.launcher.spare import Spare

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DRAIN_SECONDS = 1.0
_STEADY_SECONDS = 30.0  # a process that has run so long starts again at once
_FIRST_RESTART_SECONDS = 1.0  # twice as many for each further one that ends sooner
_LAST_RESTART_SECONDS = 30.0
_LOOK_SECONDS = 0.5  # between two looks for places of further workers
_READ_BYTES = 1 << 16


@dataclasses.dataclass(frozen=True)
class Patience:
    """Time limits in seconds.

    Attributes:
        survivor_wait: how long the other processes may run after one has failed, so that they can end with
            their own messages.
        grace: how long a process may run after a signal to end, before SIGKILL; also how long servers may run
            after the workers.
    """

    survivor_wait: float = 6.0
    grace: float = 5.0


def say(text: str) -> None:
    """Prints one line of the launcher itself."""
    print(f"tfs-run: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def exits_on_signals() -> Iterator[None]:
    """Lets a signal to end leave the block with SystemExit, so that files are removed. `Supervisor.run` has its own way."""
    before = {number: signal.getsignal(number) for number in _FORWARDED}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, _exit)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


class Outputs(Protocol):
    """Takes the output of the processes."""

    def writers(self, name: str) -> Sequence[LineWriter]:
        """Returns the writers of a process, for its stdout and its stderr."""

    def describe(self, name: str) -> Sequence[str]:
        """Returns what to say of the output of a process that has failed."""

    def close(self) -> None:
        """Closes files."""


class Job(NamedTuple):
    """A process that a supervisor starts.

    Attributes:
        name: its name in messages, such as "worker 0".
        start: starts it, with pipes for its output.
        role: its role in the cluster; "" if it stands for several.
        address: "host:port", or "".
        start_again: starts it after it has failed while others go on; None if it does not start again.
        outputs: where its output goes; None for those of the supervisor.
    """

    name: str
    start: Callable[[], LaunchedProcess]
    role: str = ""
    address: str = ""
    start_again: Callable[[], LaunchedProcess] | None = None
    outputs: Outputs | None = None


class Grows(Protocol):
    """Says which workers may run, and makes further ones."""

    def has_place(self, index: int) -> bool:
        """Returns True if a worker may run now."""

    def ended(self, index: int) -> None:
        """Notes that a worker has ended."""

    def next_job(self) -> Job | None:
        """Returns the job of a further worker, with the next index; None if there is no place for one."""


class Supervisor:
    """Runs processes until they have ended.

    Args:
        jobs: the processes.
        patience: the time limits.
        outputs: where the output of the processes goes; closed at the end.
        trains_elsewhere: whether processes on other hosts train, too. If not, servers that still run some time after
            the last training process are ended.
        min_workers: the fewest training processes that go on when others fail; None if none do.
        growth: starts further workers while others train; None if there are no others than `jobs`. All jobs are workers then.
        spare: holds a process in which jobs start again; None if there is none.

    Attributes:
        interrupted: whether a signal to the launcher ended the processes.
        failed: the name of the first process that failed; None if none has.
        restarts_left: how often one that fails may still start again while others go on, over all processes.
        ends: how each process ended, by its name, such as "killed by SIGKILL after 3.2 s"; set by `run`.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        patience: Patience,
        outputs: Outputs,
        *,
        trains_elsewhere: bool = False,
        min_workers: int | None = None,
        growth: Grows | None = None,
        spare: Spare | None = None,
    ) -> None:
        self._growth, self._next_look = growth, 0.0
        # Lost workers that do not start again, because their places have gone.
        self._without_place: list[Job] = []
        self._jobs, self._patience, self._outputs = list(jobs), patience, outputs
        self._trains_elsewhere = trains_elsewhere
        self._min_workers = min_workers
        self.restarts_left = 0
        self._quick_ends = 0
        self._spare = spare
        self._former: list[
            LaunchedProcess
        ] = []  # lost processes, whose descendants may still write to their pipes
        self._due: list[tuple[float, Job]] = []  # when jobs start again, in order
        self.interrupted = False
        self.failed: str | None = None
        self.ends: dict[str, str] = {}
        self._processes: list[LaunchedProcess] = []
        self._selector = selectors.DefaultSelector()
        self._writers: dict[int, LineWriter] = {}  # by the file descriptor that is read
        self._senders: dict[int, LaunchedProcess] = {}  # by the file descriptor that is full
        self._status = 0  # the status of the first failure, or of the signal that was received
        self._signals: list[int] = []
        self._reader_gone = False  # nobody reads the output, for which the processes are ended
        self._deadlines: list[
            tuple[float, int]
        ] = []  # (time, signal for the processes that still run), in order
        self._is_ending = False  # no process starts any more

    def run(self) -> int:
        """Runs until all processes and their descendants have ended. Returns the exit status of tfs-run."""
        adopt_orphans()
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        before_wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        before = {number: signal.getsignal(number) for number in (*_FORWARDED, signal.SIGCHLD)}
        self._selector.register(reader, selectors.EVENT_READ)
        try:
            for number in _FORWARDED:
                if before[number] != signal.SIG_IGN:
                    signal.signal(number, self._on_signal)
            signal.signal(signal.SIGCHLD, lambda number, frame: None)
            self._start()
            while any(process.running for process in self._processes):
                self._step(reader)
            self._drain()
            self._show_failed()
        finally:
            for process in self._processes:
                process.signal(signal.SIGKILL)
            if self._spare is not None:
                self._spare.end()
            kill_orphans()
            for number, handler in before.items():
                signal.signal(number, handler)
            self.interrupted = self.interrupted or bool(self._signals)  # one that came at the end
            signal.set_wakeup_fd(before_wakeup)
            self._selector.close()
            self._outputs.close()
            os.close(reader)
            os.close(writer)
        for job, process in zip(self._jobs, self._processes):
            self.ends[job.name] = process.describe_end()
            say(f"{job.name}{f' ({job.address})' if job.address else ''} {self.ends[job.name]}")
        return self._status

    def _start(self) -> None:
        for job in self._jobs:
            self._add(job)

    def _add(self, job: Job) -> None:
        self._processes.append(job.start())
        self._read(job, self._processes[-1])

    def _grow(self) -> None:
        """Starts workers on places that have appeared, while others train."""
        if self._growth is None or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_SECONDS
        training = self._training()
        ends = any(process.status == 0 for process in training if not process.running)
        if self._is_ending or ends or not any(process.running for process in training):
            return
        for job in list(self._without_place):
            if self._has_place(job) and self.restarts_left > len(self._due):
                self._without_place.remove(job)
                self._replace(job)
                left = self.restarts_left - len(self._due)
                say(f"{job.name} starts again, because it has a place again (restarts left: {left})")
        while (further := self._growth.next_job()) is not None:
            self._jobs.append(further)
            self._add(further)
            say(f"{further.name} ({further.address}) starts, and joins the others")

    def _has_place(self, job: Job) -> bool:
        return self._growth is None or self._growth.has_place(self._jobs.index(job))

    def _read(self, job: Job, process: LaunchedProcess) -> None:
        for stream, writer in zip(process.streams, (job.outputs or self._outputs).writers(job.name)):
            os.set_blocking(stream.fileno(), False)
            self._writers[stream.fileno()] = writer
            self._selector.register(stream.fileno(), selectors.EVENT_READ)

    def _start_again(self) -> None:
        """Starts the jobs again that are due, if others still train."""
        while self._due and time.monotonic() >= self._due[0][0]:
            job = self._due.pop(0)[1]
            if self._is_ending or not any(process.running for process in self._training()):
                continue
            if self._has_place(job):
                self._replace(job)
            else:
                self._without_place.append(job)
                say(f"{job.name} does not start again, because it has no place")

    def _replace(self, job: Job) -> None:
        if job.start_again is not None:
            self.restarts_left -= 1
            number = self._jobs.index(job)
            self._former.append(self._processes[number])
            self._processes[number] = job.start_again()
            self._read(job, self._processes[number])

    def _step(self, reader: int) -> None:
        for process in self._processes:
            if process.unsent and process.stdin.fileno() not in self._senders:
                self._senders[process.stdin.fileno()] = process
                self._selector.register(process.stdin.fileno(), selectors.EVENT_WRITE)
        times = [each[0] for each in (*self._deadlines[:1], *self._due[:1])]
        if self._growth is not None:
            times.append(max(self._next_look, time.monotonic()))
        if self._spare is not None and self._spare.due is not None:
            times.append(self._spare.due)
        timeout = max(0.0, min(times) - time.monotonic()) if times else None
        self._relay(timeout, reader)
        while self._signals:
            self._forward(self._signals.pop(0))
        for process in self._processes:
            if process.check_ended():
                self._on_end(process)
        while self._deadlines and time.monotonic() >= self._deadlines[0][0]:
            self._end_others(self._deadlines.pop(0)[1])
        self._start_again()
        self._grow()
        self._tend_spare()

    def _tend_spare(self) -> None:
        if self._spare is not None and not self._is_ending:
            remark = self._spare.tend()
            if remark:
                say(remark)

    def _relay(self, timeout: float | None, reader: int | None = None) -> bool:
        """Relays the output that is available. Returns True if there was any."""
        found = False
        for key, _ in self._selector.select(timeout):
            descriptor = key.fd
            if descriptor == reader:
                os.read(descriptor, _READ_BYTES)
                continue
            if descriptor in self._senders:
                self._senders[descriptor].send()
                if not self._senders[descriptor].unsent:
                    self._selector.unregister(descriptor)
                    del self._senders[descriptor]
                continue
            if descriptor not in self._writers:
                continue
            found = True
            data = os.read(descriptor, _READ_BYTES)
            self._pass_on(self._writers[descriptor], data)
            if not data:
                self._selector.unregister(descriptor)
                del self._writers[descriptor]
        return found

    def _pass_on(self, writer: LineWriter, data: bytes) -> None:
        """Passes output on, or ends the processes when its reader has gone."""
        try:
            if data:
                writer.feed(data)
            else:
                writer.finish()
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):  # EIO: the terminal has gone
                raise
            if not self._signals and not any(process.told_to_end for process in self._processes):
                self._signals.append(signal.SIGTERM)
                self._reader_gone = True

    def _drain(self) -> None:
        end = time.monotonic() + _DRAIN_SECONDS
        while self._writers and time.monotonic() < end and self._relay(0.0):
            pass
        for writer in self._writers.values():
            self._pass_on(writer, b"")

    def _show_failed(self) -> None:
        for job in self._jobs:
            if job.name == self.failed:
                for line in (job.outputs or self._outputs).describe(job.name):
                    say(line)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

    def _forward(self, number: int) -> None:
        self.interrupted = True
        again = any(process.told_to_end for process in self._processes if process.running)
        if again and self._reader_gone:
            # What ended the reader often signals this launcher, too, which is no second wish.
            self._reader_gone = False
            return
        self._status = self._status or 128 + number
        self._is_ending = True
        self._end_others(signal.SIGKILL if again else number)
        self._deadlines = [(time.monotonic() + self._patience.grace, signal.SIGKILL)]

    def _on_end(self, process: LaunchedProcess) -> None:
        if self._growth is not None:
            self._growth.ended(self._processes.index(process))
        if process.status != 0 and not self._is_ending and self._others_go_on(process):
            if self._only_servers_left() and not self._due:
                self._end_after(self._patience.grace)
        elif process.status != 0 and self._status == 0 and not process.told_to_end:
            self._status = process.status
            others = sum(other.running for other in self._processes)
            wait = self._patience.survivor_wait
            remark = f"; the other {others} will be ended in {wait:g} s" if others else ""
            say(f"{process.name} {process.describe_end()}{remark}")
            self.failed = process.name
            self._end_after(wait)
        elif self._status == 0 and not self._is_ending and self._only_servers_left():
            self._end_after(self._patience.grace)

    def _others_go_on(self, failed: LaunchedProcess) -> bool:
        """Returns True if enough training processes are left, and a lost server starts again. It says so."""
        training = self._training()
        left = [process for process in training if process.running or process.status == 0]
        if self._min_workers is None or len(left) < self._min_workers:
            return False
        running = sum(process.running for process in left)
        job = self._jobs[self._processes.index(failed)]
        may_start = running > 0 and job.start_again is not None and self.restarts_left > len(self._due)
        if job.role == "ps" and may_start:
            remark = f"the workers may wait for it (--min-workers {self._min_workers}){self._starts_later(job, failed)}"
        elif failed not in training:
            return False
        else:
            remark = f"{running} of {len(training)} go on (--min-workers {self._min_workers})"
            if may_start and not self._has_place(job):
                self._without_place.append(job)
                remark += ", and it does not start again, because it has no place"
            elif may_start:
                remark += self._starts_later(job, failed)
        say(f"{failed.name} {failed.describe_end()}; {remark}")
        return True

    def _starts_later(self, job: Job, failed: LaunchedProcess) -> str:
        """Plans the next start of a job, after longer and longer waits if it ends soon each time. Returns what is to be said."""
        wait = 0.0
        if failed.seconds < _STEADY_SECONDS:
            wait = min(_FIRST_RESTART_SECONDS * 2.0 ** min(self._quick_ends, 10), _LAST_RESTART_SECONDS)
            self._quick_ends += 1
        self._due = sorted([*self._due, (time.monotonic() + wait, job)], key=lambda due: due[0])
        when = f"in {wait:g} s" if wait else "now"
        return f", and it starts again {when} (restarts left: {self.restarts_left - len(self._due)})"

    def _training(self) -> list[LaunchedProcess]:
        """Returns the processes that train, each as it was started last."""
        return [process for job, process in zip(self._jobs, self._processes) if job.role in TRAINING_ROLES]

    def _only_servers_left(self) -> bool:
        """Returns True if all training processes have ended and servers still run."""
        if self._trains_elsewhere:
            return False
        trained = [job for job in self._jobs if job.role in TRAINING_ROLES]
        left = [job.role for job, process in zip(self._jobs, self._processes) if process.running]
        return bool(trained) and bool(left) and set(left) == {"ps"}

    def _end_after(self, seconds: float) -> None:
        self._is_ending = True
        first = time.monotonic() + seconds
        self._deadlines = [(first, signal.SIGTERM), (first + self._patience.grace, signal.SIGKILL)]

    def _end_others(self, number: int) -> None:
        for process in self._processes:
            if process.running:
                process.told_to_end = True
                process.signal(number)
