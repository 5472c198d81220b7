"""Defines the interface between the Keras bridge and strategies with several workers."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Callable, ContextManager, Iterator, Optional, Sequence

from tf_strategies.keras.fit_types import Callback, Logs, StepFunction
from tf_strategies.keras.shared_progress import SharedProgress
from tf_strategies.keras.types import Compression, Model, Variable
from tf_strategies.types import BatchIterator, Kwargs, Result, Structure, TensorOrSlices

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["WorkerStrategy", "workers_of"]

_log = logging.getLogger("tf_strategies")


class WorkerStrategy:
    """A strategy with several workers, as the bridge sees it.

    Attributes:
        rank: this worker's number; 0 is the chief, who alone writes files and shows progress.
        size: the number of workers.
        is_elastic: whether `fit` goes on when workers are lost.
        deals_batches: whether the batches of datasets are dealt out to workers that keep their own pace.
        has_local_steps: whether workers take steps by themselves, and average their weights.
        sums_when_applied: whether gradients of several workers are added up when they are applied, after
            Keras has processed them.
    """

    rank = 0
    size = 1
    deals_batches = False
    is_elastic = False
    has_local_steps = False
    sums_when_applied = False
    num_replicas_in_sync: int  # of tf.distribute.Strategy
    _compression: Optional[Compression] = None

    @property
    def generation(self) -> Optional[int]:
        """The number of the group of workers, which changes when workers are lost or join; None if it never does."""
        return None

    @property
    def may_have_others(self) -> bool:
        """Whether there are other workers, or others may join later."""
        return self.size > 1 or self.is_elastic

    @property
    def compression(self) -> Optional[Compression]:
        """The compressor of gradients, one of `tfs.compression`; None for no compression."""
        return self._compression

    @property
    def compresses(self) -> bool:
        """Whether gradients are compressed."""
        return self._compression is not None

    @property
    def momentum_of_compression(self) -> float:
        """The momentum that the compressor applies instead of the optimizer; 0 for none."""
        return 0.0 if self._compression is None else float(self._compression.replaces_momentum)

    def name_of(self, rank: int) -> str:
        """Returns the name of a worker in messages: its task and, for a worker in a cluster, its address."""
        return f"worker {rank}"

    def name_variables(self, variables: Sequence[Variable]) -> None:
        """Records the names of Keras variables."""
        del variables

    def apply_if_finite(self, finite: tf.Tensor, apply: Callable[[], None], skip: Callable[[], None]) -> None:
        """Applies the gradients of a step, or skips the step, where gradients are added up when they are applied.

        Call it in a replica function.

        Args:
            finite: [] bool, whether the gradients of this replica are finite. The step is applied if those of
                all replicas in it are.
            apply: requests the updates of a step that is applied.
            skip: requests the updates of a step that is skipped.
        """
        raise NotImplementedError

    def as_sent(self, value: TensorOrSlices, variable: Variable) -> TensorOrSlices:
        """Returns the gradient of a variable in the type to which compression rounds it before it is applied."""
        del variable
        return value

    def one_op_seed(self) -> ContextManager[int]:
        """Opens a context in which random operations of datasets have equal seeds on all workers. A collective.

        It yields a seed for other uses.
        """
        return contextlib.nullcontext(0)

    def training(self) -> ContextManager[None]:
        """Opens a context for the time that `fit` runs."""
        return contextlib.nullcontext()

    def training_on_batch(self) -> ContextManager[None]:
        """Opens a context for the time of a step outside of `fit`."""
        return contextlib.nullcontext()

    def keep_fitting(self, model: Model, arguments: Kwargs, fit: Callable[..., Result]) -> Result:
        """Calls `fit`, and again if it ends because workers were lost and the others go on.

        Args:
            model: the model that is trained.
            arguments: those of `Model.fit` that were given, by name.
            fit: trains the model, with other arguments than those if it is given them by name. When it is called again, it
                continues.
        """
        del model, arguments
        return fit()

    def batch_of(self, element: Structure) -> Structure:
        """Returns the batch in an element of the dataset of `fit`, or its spec in that of an element."""
        return element

    def own_callbacks(self) -> Sequence[Callback]:
        """Callbacks of the strategy itself, which run after those of the user."""
        return ()

    def counted_by_all(self, variables: Sequence[tf.Variable]) -> ContextManager[None]:
        """Opens a context in which these metric variables hold the sums over all workers.

        The context is open while the logs of an epoch are computed.
        """
        del variables
        return contextlib.nullcontext()

    def progress_of_fit(self) -> Optional[SharedProgress]:
        """Returns the store for the progress of the workers of a fit.

        Returns None if variables do not outlive the workers.
        """
        return None

    def alone(self) -> ContextManager[None]:
        """Opens a context in which this worker makes variables without the other workers."""
        return contextlib.nullcontext()

    def joint_steps(
        self, model: Model, data: Iterator[Structure], *, trains: bool, sums_logs: bool
    ) -> ContextManager[BatchIterator]:
        """Opens a context in which replica functions are steps of `fit` or `evaluate`. Yields the iterator for them.

        Args:
            model: the model whose steps run.
            data: the iterator from which the steps take batches.
            trains: whether they are steps of `fit`.
            sums_logs: whether Keras adds up the scalars that the replicas return. Otherwise it takes their
                mean.
        """
        del model, trains, sums_logs
        return contextlib.nullcontext(data)

    def trained(self, model: Model) -> None:
        """Notes that steps of `fit` have run."""
        del model

    def evaluates(self, model: Model) -> None:
        """Prepares the model for steps of `evaluate` or `predict`."""
        del model

    def epoch_trained(self, model: Model) -> Callable[[Logs], Logs]:
        """Notes that the data of an epoch have ended, before its logs are computed. Does nothing in `evaluate`.

        Returns:
            A function that makes the logs of the last step those of all workers.
        """
        del model
        return lambda logs: logs

    def call(self, function: StepFunction, *args: Structure) -> Structure:
        """Calls the function that runs the steps of `fit`, `evaluate` and `predict`."""
        return function(*args)

    def recover(self, error: Exception, generation: Optional[int]) -> bool:
        """Waits until lost variables have come back, if they were the cause of an error.

        The functions of the model must then be traced again. Returns False if the error had another cause.

        Args:
            error: the error.
            generation: the `generation` when the call began that failed.
        """
        del error, generation
        return False

    def data_after_loss(self, data: BatchIterator) -> BatchIterator:
        """Returns the data with which a training step is called again that a loss of variables has cut off."""
        _log.warning("the batches of the step that was cut off are left out of this epoch")
        return data

    def whole_data(self) -> ContextManager[None]:
        """Opens a context in which workers that keep their own pace see all data.

        The context is open while `evaluate` and `predict` run.
        """
        return contextlib.nullcontext()


def workers_of(model: Optional[Model]) -> Optional[WorkerStrategy]:
    """Returns the strategy of a model, if several workers train it, or did before some were lost, or it averages weights."""
    strategy = getattr(model, "distribute_strategy", None)
    if not isinstance(strategy, WorkerStrategy):
        return None
    takes_part = strategy.may_have_others or strategy.has_local_steps
    return strategy if takes_part else None
