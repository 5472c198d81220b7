"""Keeps the state of one replica step while it is built, so that each value is fetched from the servers once."""

from __future__ import annotations

import contextlib
import threading
from typing import (
    TYPE_CHECKING,
    Callable,
    Collection,
    Dict,
    Hashable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Set,
    Union,
)

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.session_graphs.coordinator import in_session_graph
from tf_strategies.types import Result

if TYPE_CHECKING:
    from tf_strategies.parameter_server.updates import application, asynchronous

__all__ = ["Condition", "EntangledError", "Step", "StepDivisors", "StepRows", "current_step"]


class EntangledError(Exception):
    """Reports that an update on one server needs a value that another server computes at the same time."""


class _OnServer(NamedTuple):
    """Marks that the function being built runs on one server.

    Attributes:
        graph: of the function.
        device: of the server.
        written: the variables that such functions write to, on all servers, by id.
    """

    graph: tf.Graph
    device: str
    written: Collection[int]


class Condition(NamedTuple):
    """An outcome of a check: all gradients of the step are finite, or some are not.

    Attributes:
        check: the number of the check in the step.
        finite: the outcome.
    """

    check: int
    finite: bool


class StepRows(NamedTuple):
    """The rows of a step.

    Attributes:
        own: the number of rows of this worker, [] int64.
        total: the number of rows of all workers, [] int64.
        are_copied: whether all workers have the same rows, which the first one counts, [] bool.
    """

    own: tf.Tensor
    total: tf.Tensor
    are_copied: tf.Tensor


class StepDivisors(NamedTuple):
    """The divisor of the loss of each worker, as a whole number of small parts.

    Attributes:
        own: the divisor of this worker, [] int64.
        total: a number of such parts that is the same on all workers, [] int64.
    """

    own: tf.Tensor
    total: tf.Tensor


class Step:
    """Holds what one call of a replica function shares.

    Attributes:
        pending: updates that were put off.
        settle: makes the updates that were put off, if they may not wait for the end of the step.
        merges: how many `merge_call`s have begun.
        checks: for each time that gradients are applied if they are finite, whether this worker's are, [] bool.
        condition: the outcome of a check on which updates depend that are now requested; None for all outcomes.
        rows: the numbers of rows; None if they are unknown, and all workers count equally.
        divisors: what weights gradients in place of rows; None if rows do.
    """

    def __init__(self) -> None:
        self.rows: Optional[StepRows] = None
        self.divisors: Optional[StepDivisors] = None
        self._graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        self._held: Dict[Hashable, object] = {}
        self._reads: Dict[int, List[Hashable]] = {}
        self._written: Set[int] = set()
        self.pending: List[Union[application.Update, asynchronous._Update]] = []
        self.settle: Callable[[], None] = _nothing
        self.merges = 0
        self.checks: List[tf.Tensor] = []
        self.condition: Optional[Condition] = None
        self._merging: Optional[tf.Graph] = None
        self._server: Optional[_OnServer] = None

    @property
    def covers_current_graph(self) -> bool:
        """Whether what is built now runs when the step does: its graph, a branch or loop in it, or a server's function."""
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        if self._graph is None or graph is None:
            return graph is self._graph
        if self._server is not None and compat.is_branch_of(graph, self._server.graph):
            return True
        return compat.is_branch_of(graph, self._graph)

    @property
    def weights(self) -> Union[StepRows, StepDivisors, None]:
        """Returns what the gradients of the workers are weighted by; None if all count equally."""
        return self.rows if self.divisors is None else self.divisors

    @property
    def is_top(self) -> bool:
        """Whether what is built now is in no branch or loop of the step."""
        return self._graph is None or tf.compat.v1.get_default_graph() is self._graph

    @property
    def may_put_off(self) -> bool:
        """Whether an update may be made later than it is asked for: it still runs, and after what is built now."""
        if in_session_graph():
            return False
        if self._merging is not None and self._merging is tf.compat.v1.get_default_graph():
            return True
        return self.is_top

    @contextlib.contextmanager
    def merging(self) -> Iterator[None]:
        """Opens a context for a `merge_call`. Updates that are postponed in a branch or loop run when it closes."""
        self.merges += 1
        if self.may_put_off or tf.executing_eagerly() or in_session_graph():
            yield
            return
        before = self._merging, self.pending, self.settle
        self._merging, self.pending, self.settle = tf.compat.v1.get_default_graph(), [], _nothing
        try:
            yield
            self.settle()
        finally:
            self._merging, self.pending, self.settle = before

    @contextlib.contextmanager
    def outside_of_branches(self) -> Iterator[None]:
        """Opens a context in which operations are added to the step itself, and not to the branch or loop that is being built."""
        if self.is_top:
            yield
            return
        with self._graph.as_default():
            yield

    @contextlib.contextmanager
    def on_server(self, device: str, written: Collection[int]) -> Iterator[None]:
        """Opens a context in which what is built is a function that runs on this server alone.

        Args:
            device: of the server.
            written: the variables, by id, that functions on all servers write to at the same time.
        """
        self._server = _OnServer(tf.compat.v1.get_default_graph(), device, written)
        try:
            yield
        finally:
            self._server = None

    @contextlib.contextmanager
    def between_servers(self, variable: tf.Variable) -> Iterator[None]:
        """Opens a context in which a server's function gets variables of other servers as arguments.

        The reads are added around the function, not in it.

        Raises:
            EntangledError: it is being written.
        """
        if self._server is None:
            yield
            return
        if id(variable) in self._server.written:
            raise EntangledError
        with self._server.graph.outer_graph.as_default():
            yield

    @contextlib.contextmanager
    def only_if(self, condition: Condition) -> Iterator[None]:
        """Opens a context in which updates are requested for one outcome of a check."""
        if self.condition is not None:
            raise NotImplementedError(
                "gradients are applied with a loss scale while others are being applied with one; let one "
                "LossScaleOptimizer apply them"
            )
        self.condition = condition
        try:
            yield
        finally:
            self.condition = None

    def require_on_server(self, device: str) -> None:
        """Raises EntangledError in a function for another server."""
        if self._server is not None and self._server.device != device:
            raise EntangledError

    def cached(
        self, key: Hashable, make: Callable[[], Result], read_of: Optional[tf.Variable] = None
    ) -> Result:
        """Returns what `make` returned when it was first called for the key, or since the variable it was read of was written.

        In a branch or loop it is called again: what one of them has made is not there for others.
        """
        key = self._here(key)
        if key not in self._held:
            self._held[key] = make()
            if read_of is not None:
                self._reads.setdefault(id(read_of), []).append(key)
        return self._held[key]

    def held(self, key: Hashable) -> Optional[object]:
        """Returns the value that `cached` has for a key, or None."""
        return self._held.get(self._here(key))

    def has_written(self, variable: tf.Variable) -> bool:
        return id(variable) in self._written

    def forget(self, variable: tf.Variable) -> None:
        """Forgets the value that was read of a variable, because the variable was written."""
        self._written.add(id(variable))
        for key in self._reads.pop(id(variable), ()):
            del self._held[key]

    @staticmethod
    def _here(key: Hashable) -> Hashable:
        return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph(), key


def _nothing() -> None:
    """Does nothing: no update was postponed."""


class _Current(threading.local):
    step: Optional[Step] = None


_current = _Current()


def current_step() -> Optional[Step]:
    """Returns the step to which operations belong that are built now.

    None outside of replica functions, and in functions that outlive them.
    """
    step = _current.step
    return step if step is not None and step.covers_current_graph else None


@contextlib.contextmanager
def new_step() -> Iterator[Step]:
    before, _current.step = _current.step, Step()
    try:
        yield _current.step
    finally:
        _current.step = before
