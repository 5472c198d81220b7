"""Runs the collectives of the workers that a communicator connects: those of a group, or some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, List, Optional, Sequence, Tuple, Union

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.collective.unconnected import Unconnected
from tf_strategies.collective.worker_group import Place
from tf_strategies.collective.xla import refuse_xla
from tf_strategies.errors import BootstrapError

if TYPE_CHECKING:
    from tf_strategies.native.communicator import Communicator
    from tf_strategies.native.subgroup import Subcommunicator

__all__ = ["CommunicatorWorkers", "SubgroupWorkers"]


class CommunicatorWorkers:
    """The collectives of the workers of a communicator. All workers must make the same calls.

    Args:
        communicator: a `Communicator` or `Subcommunicator`.
        names: of the workers, by rank.
        hosts: the identities of their hosts, by rank.
        timeout: how long a collective waits, in seconds.
    """

    def __init__(
        self,
        communicator: Union[Communicator, Subcommunicator, Unconnected],
        names: Sequence[str],
        hosts: Sequence[str],
        timeout: float,
    ) -> None:
        from tf_strategies.native import collective_ops

        self._ops = collective_ops
        self._communicator: Union[Communicator, Subcommunicator, Unconnected] = communicator
        self._names = names
        self.hosts = tuple(hosts)
        self.timeout = timeout

    is_newcomer = False
    is_behind = False
    _rehearses = False
    generation: Optional[int] = None

    @property
    def now(self) -> Place:
        return Place(self._communicator.rank, self._communicator.size)

    @property
    def rank(self) -> int:
        return self.now.rank

    @property
    def size(self) -> int:
        return self.now.size

    def rank_in_graph(self) -> Union[int, tf.Tensor]:
        return self.now.rank

    def size_in_graph(self) -> Union[int, tf.Tensor]:
        return self.now.size

    @property
    def may_have_others(self) -> bool:
        return self.now.size > 1 or self.generation is not None

    @property
    def usable(self) -> bool:
        return self._communicator.usable

    @property
    def failure(self) -> str:
        return self._communicator.failure

    def name_of(self, rank: int) -> str:
        return self._names[rank]

    def _require_connection(self, what: str) -> None:
        if self.is_newcomer and not self._rehearses:
            raise BootstrapError(
                f"{self._names[self.rank]} has started again while the others train. It can join them in fit or "
                f"ElasticState.run, but not in {what!r} before that; make the variables, and call that first"
            )

    def _begin(self, name: str, content: Callable[[], str]) -> None:
        """Prepares a collective. `content` returns a description of what is equal on all workers."""
        del content
        self._require_connection(name)
        refuse_xla(name)

    def all_reduce(
        self, tensors: Sequence[tf.Tensor], name: str, layout: str = "", reduction: str = "sum"
    ) -> List[tf.Tensor]:
        self._begin(name, lambda: " ".join([layout, reduction, *map(_dtype_and_shape, tensors)]))
        totals = self._ops.all_reduce(
            list(tensors), communicator=self._communicator, reduction=reduction, name=name, layout=layout
        )
        _side_by_side(totals[0])
        return totals

    def all_gather(self, tensor: tf.Tensor, name: str, layout: str = "") -> tf.Tensor:
        self._begin(name, lambda: f"{layout} {tensor.dtype.name}{tensor.shape[1:]}")
        return _side_by_side(
            self._ops.all_gather(tensor, communicator=self._communicator, name=name, layout=layout)
        )

    def all_to_all(
        self, tensor: tf.Tensor, lengths: tf.Tensor, name: str, layout: str = ""
    ) -> Tuple[tf.Tensor, tf.Tensor]:
        self._begin(name, lambda: f"{layout} {tensor.dtype.name}{tensor.shape[1:]}")
        result = self._ops.all_to_all(
            tensor, lengths, communicator=self._communicator, name=name, layout=layout
        )
        _side_by_side(result.received)
        return result

    def broadcast(self, tensor: tf.Tensor, name: str, root: int = 0) -> tf.Tensor:
        self._begin(name, lambda: f"from {root} {_dtype_and_shape(tensor)}")
        return self._ops.broadcast(tensor, communicator=self._communicator, name=name, root=root)


class SubgroupWorkers(CommunicatorWorkers):
    """Some workers of a group."""

    def end_failures(self) -> None:
        """Does the same as `Subcommunicator.end_failures`."""
        self._communicator.end_failures()

    def close(self) -> None:
        """Closes the connections of these workers."""
        self._communicator.close()


def _side_by_side(result: tf.Tensor) -> tf.Tensor:
    """Lets a function start this collective when its inputs are ready, in any order with other collectives."""
    if not tf.executing_eagerly():
        compat.run_independently(result.op)
    return result


def _dtype_and_shape(tensor: tf.Tensor) -> str:
    return f"{tensor.dtype.name}{tensor.shape}"
