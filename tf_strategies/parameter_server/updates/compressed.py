"""Sends compressed gradients to servers: compressed on the worker, restored on the server."""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

import tensorflow as tf

from tf_strategies.compression import Compressor
from tf_strategies.compression.gradient_compression import GradientCompression, is_broken, require_one_each
from tf_strategies.parameter_server.cluster.servers import Servers
from tf_strategies.parameter_server.cluster.transport import Transport
from tf_strategies.parameter_server.updates.step import current_step
from tf_strategies.parameter_server.variables.parts import Part
from tf_strategies.parameter_server.variables.server_variable import ServerVariable
from tf_strategies.parameter_server.variables.small_tensors import is_small, join, take_apart
from tf_strategies.types import Result, TensorOrSlices

__all__ = ["CompressedPushes", "Push"]


class Push(NamedTuple):
    """A gradient for a part of a variable.

    Attributes:
        value: tensor or IndexedSlices of the part's shape.
        merge: the number of the exchange. The gradients of one exchange are clipped, and checked for values
            that are not finite, together.
    """

    variable: ServerVariable
    part: Part
    value: TensorOrSlices
    merge: int


class CompressedPushes:
    """Sends a worker's gradients to the servers. The state of the compressor stays on the worker.

    If a gradient is not finite, the state does not change, and the compressed gradients arrive as NaN.

    Args:
        compressor: the compressor.
        servers: the devices of the servers.
        workers: the number of workers whose gradients are added up in a step.
    """

    def __init__(self, compressor: Compressor, servers: Servers, *, workers: int) -> None:
        self._compression = GradientCompression(compressor, servers.device, state_is_local=True)
        self._servers = servers
        self._workers = workers

    def name(self, variable: ServerVariable, name: str) -> None:
        """Returns the name of a variable without a name."""
        self._compression.name(variable, name)

    def rounded(self, value: TensorOrSlices, variable: tf.Variable) -> TensorOrSlices:
        """Returns a gradient in the type to which the compressor rounds it, or unchanged if it does more or nothing."""
        dtype = self._compression.compressor.rounds_to
        if dtype is None or not self._compression.takes(value, variable):
            return value
        return tf.cast(value, dtype)

    def pushed(self, pushes: Sequence[Push]) -> List[TensorOrSlices]:
        """Returns the gradients of a step: compressed gradients on their servers, and others unchanged on this worker."""
        found: List[Optional[TensorOrSlices]] = [None] * len(pushes)
        for merge in dict.fromkeys(push.merge for push in pushes):
            mine = [i for i, push in enumerate(pushes) if push.merge == merge]
            for i, value in zip(mine, self._pushed_together([pushes[i] for i in mine])):
                found[i] = value
        return found

    def _pushed_together(self, pushes: Sequence[Push]) -> List[TensorOrSlices]:
        compression = self._compression
        require_one_each([push.part.variable for push in pushes])
        with tf.device(self._servers.device):
            values = list(compression.prepared([push.value for push in pushes], self._workers))
            pushes = [push._replace(value=value) for push, value in zip(pushes, values)]
            taken = [i for i, push in enumerate(pushes) if compression.takes(push.value, push.variable)]
            hidden = bool(taken) and not compression.compressor.shows_what_is_not_finite
            broken = is_broken(values) > 0 if hidden or compression.remembers else None
            later = [
                i for i, push in enumerate(pushes) if i not in taken and compression.comes_after(push.value)
            ]
            if later:
                results = _unless(
                    broken,
                    lambda: [self._after(pushes[i]) for i in later],
                    lambda: [pushes[i].value for i in later],
                )
                for i, result in zip(later, results):
                    values[i] = result
        by_server: Dict[str, List[int]] = {}
        for i in taken:
            by_server.setdefault(pushes[i].part.device, []).append(i)
        for server, mine in by_server.items():
            for i, total in zip(mine, self._exchange(server, [pushes[i] for i in mine], broken)):
                values[i] = total
        if taken:
            self._count(pushes[0].merge)
        return values

    def _count(self, merge: int) -> None:
        """Counts an exchange once, even if several calls belong to it."""
        step = current_step()
        if step is None:
            self._count_one()
        else:
            step.cached(("exchange", merge), self._count_one)

    def _count_one(self) -> None:
        with tf.device(self._servers.device):
            self._compression.step.assign_add(1, read_value=False)

    def _after(self, push: Push) -> tf.Tensor:
        # The velocity of a sum is the sum of the velocities, so each worker may keep its own.
        return self._compression.after(push.value, push.variable, push.part.variable)

    def _exchange(self, server: str, pushes: Sequence[Push], broken: Optional[tf.Tensor]) -> List[tf.Tensor]:
        compression = self._compression
        with tf.device(self._servers.device):
            step = compression.step.read_value()
            gradients = [
                compression.gradient(push.value, number, push.variable, push.part.variable)
                for number, push in enumerate(pushes)
            ]

        def proceed() -> List[tf.Tensor]:
            with tf.device(self._servers.device):
                route = _Route(self._servers.transport, self._servers.rank, server)
                return compression.compressor.add_up(gradients, step, route)

        with tf.device(server):
            totals = _unless(
                broken,
                proceed,
                lambda: [tf.fill(gradient.value.shape, float("nan")) for gradient in gradients],
            )
            return [
                tf.cast(tf.reshape(total, push.part.variable.shape), push.value.dtype)
                for push, total in zip(pushes, totals)
            ]


class _Route:
    """The `Workers` of a compressor: this worker alone, whose sums are needed on a server."""

    size = 1

    def __init__(self, transport: Transport, rank: int, server: str) -> None:
        self._transport = transport
        self._server = server
        self.rank = rank

    def add_up(
        self, tensors: Sequence[tf.Tensor], then: Callable[[List[tf.Tensor]], List[tf.Tensor]]
    ) -> List[tf.Tensor]:
        arrived: List[Optional[tf.Tensor]] = [None] * len(tensors)
        small = [i for i, tensor in enumerate(tensors) if is_small(tensor)]
        together = self._transport.push(join([tensors[i] for i in small]), self._server) if small else None
        with tf.device(self._server):
            for i, part in zip(small, take_apart(together, [tensors[i].shape for i in small])):
                arrived[i] = part
        for i, tensor in enumerate(tensors):
            if i not in small:
                arrived[i] = self._transport.push(tensor, self._server)
        with tf.device(self._server):
            return then(arrived)

    def gather(
        self, tensor: tf.Tensor, name: str, then: Callable[[tf.Tensor], List[tf.Tensor]]
    ) -> List[tf.Tensor]:
        del name
        arrived = self._transport.push(tensor, self._server)
        with tf.device(self._server):
            return then(arrived)


def _unless(
    broken: Optional[tf.Tensor], build: Callable[[], Result], otherwise: Callable[[], Result]
) -> Result:
    return build() if broken is None else tf.cond(broken, otherwise, build)
