"""Measures the steps of a worker: their time, their communication, and how much of it was hidden behind computation."""

from __future__ import annotations

import dataclasses
import time
from typing import List, Optional, Protocol, Sequence, Tuple

from tf_strategies.trace.overlap import hidden_share
from tf_strategies.trace.record import Collective

__all__ = ["Counters", "MeasuredStrategy", "StepFigures", "StepMeter", "task_of"]


class Counters(Protocol):
    """The part of `CommunicationStats` that is measured."""

    @property
    def bytes_sent(self) -> int: ...

    @property
    def bytes_received(self) -> int: ...

    @property
    def seconds_outstanding(self) -> float: ...


class MeasuredStrategy(Protocol):
    """The part of `CollectiveAllReduceStrategy` that is measured."""

    @property
    def rank(self) -> int: ...

    @property
    def local_rank(self) -> int: ...

    def name_of(self, rank: int) -> str:
        """Returns the name of a worker."""

    def communication_stats(self) -> Counters:
        """Returns the counters of this worker."""

    def recorded_collectives(self) -> Sequence[Collective]:
        """Returns the last collectives of this worker."""


def task_of(strategy: MeasuredStrategy) -> Tuple[str, str]:
    """Returns the role of this worker, "chief" or "worker", and its index within the role."""
    role, index = strategy.name_of(strategy.rank).split()[:2]
    return role, index


@dataclasses.dataclass(frozen=True)
class StepFigures:
    """Describes some steps, one after the other, on one worker.

    Attributes:
        steps: the number of steps.
        seconds: the time of these steps. A step lasts from the end of the step before it to its own end, so it has the input,
            the computation, the communication, and the callbacks after the step before it. The first step of an epoch begins
            with the epoch. The time between epochs, as for validation, does not count.
        communication_seconds: the part of `seconds` in which at least one collective of this worker was outstanding. It waited
            for another worker, or data moved.
        hidden_share: the share of the time of communication in which the worker was known to compute, from 0 to 1; see
            `tf_strategies.trace.overlap`. It is measured on the last of these steps, those among the last 1024 collectives. It
            is None if there was no communication.
        bytes_sent: the bytes that this worker has sent to the others in these steps.
        bytes_received: the bytes that it has received from them.
    """

    steps: int
    seconds: float
    communication_seconds: float
    hidden_share: Optional[float]
    bytes_sent: int
    bytes_received: int

    @property
    def step_seconds(self) -> float:
        """The mean time of a step."""
        return self.seconds / self.steps

    @property
    def steps_per_second(self) -> float:
        """The throughput. Multiplied by the global batch size, it is the number of examples per second of all workers."""
        return self.steps / self.seconds if self.seconds else 0.0

    @property
    def exposed_seconds(self) -> float:
        """The part of `communication_seconds` that was not hidden: the worker only waited, for others or for data."""
        return self.communication_seconds * (1.0 - (self.hidden_share or 0.0))


class StepMeter:
    """Measures steps. The clock runs from `resume` to the last step before `pause`.

    Args:
        strategy: the strategy that trains.
    """

    def __init__(self, strategy: MeasuredStrategy) -> None:
        self._strategy = strategy
        self._runs = False
        self._begin_ns = self._last_ns = 0
        self._before = strategy.communication_stats()
        self._forget()

    def resume(self) -> None:
        """Starts the clock."""
        self._before = self._strategy.communication_stats()
        self._start(time.monotonic_ns())

    def step_ended(self, steps: int) -> None:
        """Counts steps that have just ended."""
        self._steps += steps
        self._last_ns = time.monotonic_ns()

    def pause(self) -> None:
        """Stops the clock at the end of the last step. It may be called again."""
        if not self._runs:
            return
        self._runs = False
        now, before = self._strategy.communication_stats(), self._before
        self._stretches.append((self._begin_ns, self._last_ns))
        self._nanoseconds += self._last_ns - self._begin_ns
        self._communication += now.seconds_outstanding - before.seconds_outstanding
        self._sent += now.bytes_sent - before.bytes_sent
        self._received += now.bytes_received - before.bytes_received
        self._before = now

    @property
    def seconds(self) -> float:
        """The time of the steps since the last figures."""
        running = self._last_ns - self._begin_ns if self._runs else 0
        return (self._nanoseconds + running) / 1e9

    def take(self) -> Optional[StepFigures]:
        """Returns the figures of the steps since the last figures, or None if there was no step. It takes some milliseconds."""
        runs = self._runs
        self.pause()
        figures = self._figures() if self._steps else None
        self._forget()
        if runs:
            self._start(self._last_ns)
        return figures

    def _start(self, begin_ns: int) -> None:
        self._runs = True
        self._begin_ns = self._last_ns = begin_ns

    def _forget(self) -> None:
        self._steps = self._nanoseconds = self._sent = self._received = 0
        self._communication = 0.0
        self._stretches: List[Tuple[int, int]] = []

    def _figures(self) -> StepFigures:
        measured = [
            each
            for each in self._strategy.recorded_collectives()
            if any(begin <= each.submitted_ns <= end for begin, end in self._stretches)
        ]
        return StepFigures(
            steps=self._steps,
            seconds=self.seconds,
            communication_seconds=self._communication,
            hidden_share=hidden_share(measured),
            bytes_sent=self._sent,
            bytes_received=self._received,
        )
