"""Defines the interface between the Keras bridge and strategies whose workers train in step."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Callable, ContextManager, Dict, List, Optional, Sequence, Union

from tf_strategies.keras.fit_batches import ArrayRows, FitBatches
from tf_strategies.keras.fit_types import Dataset
from tf_strategies.keras.types import Model, Variable
from tf_strategies.keras.worker_strategy import WorkerStrategy
from tf_strategies.types import Structure

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["GroupStrategy", "group_of"]


class GroupStrategy(WorkerStrategy):
    """A strategy whose workers take every step together."""

    extended: tf.distribute.StrategyExtended  # of tf.distribute.Strategy

    @property
    def replicas(self) -> int:
        """The number of replicas of all workers. Within a step of `fit`, `num_replicas_in_sync` is 1 instead."""
        return int(self.extended._num_replicas_in_sync)

    @property
    def replicas_now(self) -> int:
        """The same, for what need not change with it in a graph: messages, and whether there are several replicas."""
        return self.replicas

    def replica_now(self) -> int:
        """Returns the number of the running replica, for what need not change with the group in a graph, such as seeds."""
        return 0

    def replicas_in_graph(self) -> Union[int, tf.Tensor]:
        """Returns the same number. In a graph it is [] float64 and changes with the group, if the group can change."""
        return self.replicas

    @property
    def batch_is_per_worker(self) -> bool:
        """Whether the global batch of a `fit` follows the number of workers."""
        return False

    @property
    def variables_made(self) -> int:
        """The number of variables that were made in the scope so far."""
        return 0

    @property
    def keeps_gradients(self) -> bool:
        """Whether compression keeps the unsent parts of gradients for later steps."""
        return self._compression is not None and bool(self._compression.slots)

    def state_of_gradients(self, variables: Sequence[Variable]) -> Sequence[tf.Variable]:
        """Returns the state of gradient compression for these variables."""
        del variables
        return ()

    def note_equal_length(self, distributed: Dataset) -> None:
        """Notes that distributed data have the same number of batches on all workers."""
        del distributed

    def state_of_local_steps(self, model: Model) -> Sequence[tf.Variable]:
        """Returns the state by which local steps continue, beside the variables of the model and its optimizer."""
        del model
        return ()

    def make_equal(self, model: Model) -> None:
        """Makes the variables of a model equal on all workers, if local steps have changed them. A collective."""
        del model

    def is_between_averages(self, model: Model) -> bool:
        """Returns True if the weights of a model differ between workers because of local steps."""
        del model
        return False

    def begin_local_steps_again(self, models: Sequence[Model]) -> None:
        """Notes that the workers have changed, and put models back to an average."""
        del models

    def models_that_differ(self) -> Sequence[Model]:
        """Returns the models that may differ between workers, in weights or slots, because of local steps."""
        return ()

    def share_of_batch(self) -> Optional[tf.Tensor]:
        """Returns, in a replica function, its rows divided by the mean over all replicas, [] float64; None for 1."""
        return None

    def reading_together(self, variables: Sequence[tf.Variable]) -> ContextManager[None]:
        """Opens a context in which these variables have been reduced over all workers in one message.

        Use it outside of replica functions.
        """
        del variables
        return contextlib.nullcontext()

    def agreed(self, results: Structure) -> Structure:
        """Records that these tensors are already equal on all workers, and returns them."""
        return results

    def exchange(self, text: str, what: str) -> List[str]:
        """Returns the text of every worker, by rank. `what` is the subject in messages. A collective."""
        del what
        return [text]

    def of_worker(self, rank: int, value: tf.Tensor, what: str) -> tf.Tensor:
        """Returns the tensor of a worker. `what` is the subject in messages. A collective."""
        del rank, what
        return value

    def values_of_worker(self, rank: int, values: Dict[str, tf.Tensor], what: str) -> Dict[str, tf.Tensor]:
        """Returns the tensors of a worker, by name: the same names, shapes and dtypes on all workers. A collective."""
        del rank, what
        return values

    def sum_over_workers(self, value: tf.Tensor, what: str) -> tf.Tensor:
        """Returns the sum of the tensors of all workers, on the CPU. `what` is the subject in messages. A collective."""
        del what
        return value

    def of_first_worker(self, value: tf.Tensor, what: str) -> tf.Tensor:
        """Returns the tensor of worker 0. `what` is the subject in messages. A collective."""
        return self.of_worker(0, value, what)

    def stops_training(self, wanted: bool) -> bool:
        """Returns True if all workers stop `fit` here, after a step or an epoch.

        Args:
            wanted: whether this worker wants to stop. All workers stop at the first point that none of them
                has passed.
        """
        return wanted

    def stopping_places(self) -> ContextManager[Callable[[bool], bool]]:
        """Opens a context in which all workers can agree to stop, for a reason of its own, beside `stops_training`.

        It yields a function that works as `stops_training` does. All workers must open such contexts in the same order.
        """
        return contextlib.nullcontext(bool)

    def batches_of_fit(
        self, arrays: Callable[[], Optional[ArrayRows]], steps_per_epoch: Optional[int]
    ) -> ContextManager[Sequence[FitBatches]]:
        """Opens a context in which `fit` splits its data between the workers.

        Yields the batches, once the data are split, if their size follows the number of workers.

        Args:
            arrays: returns the rows of the data, if they are arrays.
            steps_per_epoch: the argument of `fit`.
        """
        del arrays, steps_per_epoch
        return contextlib.nullcontext(())

    def require_agreement(self, what: str, text: str) -> None:
        """Raises ValueError on all workers if their texts about `what` differ. A collective."""
        del what, text


def group_of(model: Optional[Model]) -> Optional[GroupStrategy]:
    """Returns the strategy of a model if it has several replicas, otherwise None."""
    strategy = getattr(model, "distribute_strategy", None)
    return strategy if isinstance(strategy, GroupStrategy) and strategy.replicas_now > 1 else None
