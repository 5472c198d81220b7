"""Options of local steps: how often the workers average their weights, and how."""

from __future__ import annotations

import dataclasses
import math

from tf_strategies.errors import OptionsError
from tf_strategies.options import whole_number
from tf_strategies.types import Unchecked

_BITS = (4, 8)


@dataclasses.dataclass(frozen=True, init=False)
class LocalSGD:
    """Lets each worker take several steps by itself. The workers then average their weights.

    Each worker trains with its share of the batch. Weights are averaged after every `sync_every` steps, before `evaluate` and
    `predict`, and at the end of each epoch, weighted by the rows that each worker has trained with. At the end of an epoch the
    optimizer's slots become their mean, too, and counters those of worker 0. See docs/local_steps.md.

    Args:
        sync_every: the number of steps between two averages. With 1, SGD trains as without local steps.
        warmup_steps: the number of ordinary synchronous steps of an optimizer before the first local step ("post-local SGD").
        quantize: the bits of each weight's change on the wire, 4 or 8, with unbiased rounding. None sends whole weights.

    Raises:
        OptionsError: an argument has a value that is not allowed. The message names both and what is accepted.

    References:
        Stich 2019, "Local SGD converges fast and communicates little". Lin et al. 2020, "Don't use large mini-batches, use local
        SGD" (post-local SGD). Alistarh et al. 2017, "QSGD" (rounding).

    Example:
        >>> strategy = tfs.CollectiveAllReduceStrategy(local_steps=tfs.LocalSGD(sync_every=16))
    """

    sync_every: int
    warmup_steps: int
    quantize: int | None

    # Plain averages are a step of the outer optimizer of DiLoCo with these options.
    outer_learning_rate = 1.0
    outer_momentum = 0.0
    fragments = 1
    overlap_steps = 0

    def __init__(self, *, sync_every: int, warmup_steps: int = 0, quantize: int | None = None) -> None:
        values = {
            "sync_every": _count("sync_every", sync_every, least=1),
            "warmup_steps": _count("warmup_steps", warmup_steps, least=0),
            "quantize": quantize,
        }
        if quantize is not None and (isinstance(quantize, bool) or quantize not in _BITS):
            raise OptionsError(f"quantize must be None, 4 or 8 (bits); got {quantize!r}")
        for name, value in values.items():
            object.__setattr__(self, name, value)


@dataclasses.dataclass(frozen=True, init=False)
class DiLoCo(LocalSGD):
    """Takes local steps, after which SGD with Nesterov momentum, the outer optimizer, moves the weights of all workers.

    The average change of the weights is the gradient of the outer optimizer. This allows hundreds of steps between two averages,
    where plain averages train worse. Averages come at the same times as with `LocalSGD`.

    With `fragments`, the weights are averaged in parts, one after the other, so a step sends at most about 1/`fragments` of them.
    With `overlap_steps`, the workers train on while a fragment is summed up. A fragment that was sent after step t has, after
    step t + `overlap_steps`, the weights that the outer optimizer has computed from step t, plus what this worker's own steps
    have changed since. Where `LocalSGD` averages all weights for another reason than `sync_every`, so does this, after those that
    are on their way have arrived. See docs/local_steps.md.

    Args:
        sync_every: the number of steps between two averages of a weight.
        outer_learning_rate: the learning rate of the outer optimizer. 1 with momentum 0 is `LocalSGD`.
        outer_momentum: its momentum, at least 0 and below 1.
        warmup_steps: as for `LocalSGD`.
        quantize: as for `LocalSGD`.
        fragments: the number of parts of the weights, of about equal bytes, at most `sync_every`. One of them is averaged every
            `sync_every` / `fragments` steps.
        overlap_steps: the number of steps that are taken while a fragment is summed up, below `sync_every` / `fragments`. With 0
            the workers wait for each average.

    Raises:
        OptionsError: an argument has a value that is not allowed. The message names both and what is accepted.

    References:
        Douillard et al. 2023, "DiLoCo: distributed low-communication training of language models", algorithm 1. Douillard et al.
        2025, "Streaming DiLoCo with overlapping communication" (fragments, overlap).

    Example:
        >>> strategy = tfs.CollectiveAllReduceStrategy(local_steps=tfs.DiLoCo(sync_every=100, quantize=8))
    """

    outer_learning_rate: float
    outer_momentum: float
    fragments: int
    overlap_steps: int

    def __init__(
        self,
        *,
        sync_every: int,
        outer_learning_rate: float = 0.7,
        outer_momentum: float = 0.9,
        warmup_steps: int = 0,
        quantize: int | None = None,
        fragments: int = 1,
        overlap_steps: int = 0,
    ) -> None:
        super().__init__(sync_every=sync_every, warmup_steps=warmup_steps, quantize=quantize)
        rate, momentum = _number(outer_learning_rate), _number(outer_momentum)
        if not rate > 0:
            raise OptionsError(
                f"outer_learning_rate must be a finite number above 0; got {outer_learning_rate!r}"
            )
        if not 0 <= momentum < 1:
            raise OptionsError(f"outer_momentum must be at least 0 and below 1; got {outer_momentum!r}")
        parts = _count("fragments", fragments, least=1)
        if parts > self.sync_every:
            raise OptionsError(
                f"fragments must be at most sync_every={self.sync_every}, so that each is averaged after a step of its own; "
                f"got {parts}"
            )
        delay = _count("overlap_steps", overlap_steps, least=0)
        if delay * parts >= self.sync_every:
            raise OptionsError(
                f"overlap_steps must be below sync_every / fragments = {self.sync_every / parts:g}, so that an average ends "
                f"before the next one begins; got {delay}"
            )
        object.__setattr__(self, "outer_learning_rate", rate)
        object.__setattr__(self, "outer_momentum", momentum)
        object.__setattr__(self, "fragments", parts)
        object.__setattr__(self, "overlap_steps", delay)


def _count(name: str, value: Unchecked, *, least: int) -> int:
    number = whole_number(value)
    if number is None or number < least:
        raise OptionsError(f"{name} must be a whole number, at least {least}; got {value!r}")
    return number


def _number(value: Unchecked) -> float:
    """Returns a finite number as a float, or NaN for anything else."""
    try:
        number = math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    return number if math.isfinite(number) else math.nan
