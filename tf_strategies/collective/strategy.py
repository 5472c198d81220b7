"""`CollectiveAllReduceStrategy`: synchronous training on many workers without a central node."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Iterator, Optional, Sequence

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.cluster import Cluster
from tf_strategies.collective.exchange.agreement import exchange_texts, require_agreement
from tf_strategies.collective.exchange.communication_stats import CommunicationStats
from tf_strategies.collective.extended import CollectiveAllReduceExtended
from tf_strategies.collective.group import form_group
from tf_strategies.collective.shared_seed import one_op_seed
from tf_strategies.compression import Compressor
from tf_strategies.compression.base import checked_compressor
from tf_strategies.errors import OptionsError
from tf_strategies.keras import bridge, scope_check
from tf_strategies.keras.drift import DriftCheck
from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.joint_step import current_step
from tf_strategies.native.errors import naming_lost_workers
from tf_strategies.options import CommunicationOptions
from tf_strategies.session_graphs.coordinator import Coordinated

__all__ = ["CollectiveAllReduceStrategy"]

_STEP_LOSSES = ("mean", "sum")


class CollectiveAllReduceStrategy(Coordinated, GroupStrategy, tf.distribute.MultiWorkerMirroredStrategy):
    """Every replica of every worker computes gradients on its part of the batch; all-reduce adds them up.

    The workers are those that TF_CONFIG names (chief and workers); each runs the same script and makes this strategy once,
    which waits until all are there. Without TF_CONFIG, with one worker, or in an evaluator, there is no network.
    Variables made in `scope` start with the values of worker 0 and stay bit-identical on all workers, moving averages of batch
    normalization included, which are averaged after each step. P workers with batch b train as one process with batch P*b:
    batch sizes given to Keras and `experimental_distribute_dataset` are global.
    As `train_distribute` of a tf.estimator.RunConfig it trains by `train_and_evaluate`, each replica with batches as `input_fn`
    makes them; it may be `eval_distribute`, too.
    To TensorFlow and Keras it is a MultiWorkerMirroredStrategy, so that they gather predictions of all workers.

    Args:
        communication_options: algorithm, pack size, deadline; the default suits most.
        compression: one of `tfs.compression`, which makes gradients smaller on the way; the same on all workers. It acts on what
            optimizers add up, of this worker's replicas together; on what you reduce yourself it does not.
        step_losses: what a loss of a `train_step` in Keras `fit` is. "mean": a mean over the rows that the step sees, as in a
            program for one process; gradients are those of the mean over the joint batch. "sum": a part of a sum over all
            replicas, already divided by the global batch size or the number of replicas, as tf.distribute asks of loops with
            `strategy.run`. Those loops always have the second meaning.
        devices: this worker's devices, the same number on each; by default all its GPUs, or its CPU.
        cluster: the workers, in place of what TF_CONFIG says.

    Raises:
        ClusterConfigError: TF_CONFIG is wrong, or this task is a parameter server.
        OptionsError: an argument has a value it cannot have.
        BootstrapError: the workers did not meet within the deadline, or disagree on options.

    Example:
        >>> strategy = CollectiveAllReduceStrategy()
        >>> strategy.num_replicas_in_sync
        1
    """

    _collective_key_base = 0

    def __init__(
        self,
        communication_options: Optional[CommunicationOptions] = None,
        *,
        compression: Optional[Compressor] = None,
        step_losses: str = "mean",
        devices: Optional[Sequence[str]] = None,
        cluster: Optional[Cluster] = None,
    ) -> None:
        options = CommunicationOptions() if communication_options is None else communication_options
        if not isinstance(options, CommunicationOptions):
            raise OptionsError(f"communication_options must be a tfs.CommunicationOptions; got {options!r}")
        compression = checked_compressor(compression)
        if step_losses not in _STEP_LOSSES:
            raise OptionsError(
                f"step_losses must be one of {', '.join(map(repr, _STEP_LOSSES))}; got {step_losses!r}"
            )
        if devices is not None and (isinstance(devices, str) or not devices):
            raise OptionsError(
                f'devices must be a list of device names such as ["GPU:0", "GPU:1"]; got {devices!r}'
            )
        cluster = Cluster.from_tf_config() if cluster is None else cluster
        self._group = form_group(cluster, options)
        extended = CollectiveAllReduceExtended(
            self,
            group=self._group,
            options=options,
            compressor=compression,
            devices=devices,
            cluster_resolver=_resolver(cluster),
        )
        self._compression = compression
        self._step_losses = step_losses
        tf.distribute.Strategy.__init__(self, extended)
        self._group.join(self)
        self._read: dict = {}
        self._agreed: set = set()
        self._stops: Callable[[bool], bool] = bool
        self._require_equal_replicas()
        settings = f"compression={compression!r}, step_losses={step_losses!r}"
        require_agreement(self._group, "CollectiveAllReduceStrategy", settings)
        self._teach_keras()
        scope_check.opened(self)

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas of all workers; 1 within a step of Keras `fit` or `evaluate`.

        A `train_step` is written for one process that has the joint batch. Code in it that divides a loss by this number, as
        tf.distribute asks of loops with `strategy.run`, computes the same loss as without the division.
        """
        return 1 if current_step() is not None else self.extended._num_replicas_in_sync

    @property
    def rank(self) -> int:
        """This worker's number, from 0 (the chief) to `size` - 1."""
        return self._group.rank

    @property
    def size(self) -> int:
        """The number of workers."""
        return self._group.size

    def name_of(self, rank: int) -> str:
        """Returns how messages name a worker: `worker 1 (10.0.0.2:2222)`."""
        return self._group.name_of(rank)

    def state_of_gradients(self, variables):
        return self.extended.state_of_gradients(variables)

    def name_variables(self, variables):
        self.extended.name_variables(variables)

    def communication_stats(self) -> CommunicationStats:
        """Returns what this worker has sent and received since it joined the others, by which algorithm and transport."""
        return CommunicationStats.from_counters(self._group.stats())

    def close(self) -> None:
        """Leaves the workers, unless another strategy of this process is among them; what communicates later fails.

        Happens by itself when the program ends.
        """
        scope_check.closed(self)
        self._group.leave(self)

    def scope(self):
        """Does the same as `tf.distribute.Strategy.scope`."""
        self._teach_keras()
        return super().scope()

    def run(self, fn, args=(), kwargs=None, options=None):
        """Does the same as `tf.distribute.Strategy.run`."""
        self._agreed.clear()
        with self._naming_lost_workers():
            return super().run(fn, args=args, kwargs=kwargs, options=options)

    def call(self, function, *args):
        with self._naming_lost_workers():
            return function(*args)

    def experimental_distribute_dataset(self, dataset, options=None):
        """Does the same as `tf.distribute.Strategy.experimental_distribute_dataset`."""
        self._teach_keras()
        with self._naming_lost_workers():
            return super().experimental_distribute_dataset(dataset, options)

    def gather(self, value, axis):
        """Does the same as `tf.distribute.Strategy.gather`, from the replicas of all workers."""
        with self._naming_lost_workers():
            return super().gather(value, axis)

    def reduce(self, reduce_op, value, axis=None):
        """Does the same as `tf.distribute.Strategy.reduce`, over the replicas of all workers.

        Two calls that Keras makes differ: what all workers have agreed on stays what it is, and the mean over axis 0 of scalars
        is their mean.
        """
        if id(value) in self._read:
            return self._read[id(value)]
        parts = self.experimental_local_results(value)
        if all(isinstance(part, tf.Tensor) and part.ref() in self._agreed for part in parts):
            return parts[0]
        if axis == 0 and all(part.shape.rank == 0 for part in parts):
            axis = None
        with self._naming_lost_workers():
            return super().reduce(reduce_op, value, axis)

    def share_of_batch(self):
        # Evaluation scales a loss and back again: without a tape the share, which is a message, would change nothing.
        return self.extended.share_of_batch() if compat.is_differentiating() else None

    def joint_steps(self, model, data, *, sums_logs):
        if self._step_losses == "sum":
            return contextlib.nullcontext()
        return self.extended.joint_steps(
            is_agreed=lambda part: part.ref() in self._agreed,
            sums_logs=sums_logs,
            postpones=self.compresses or _accumulates(model.optimizer),
            shapes_are_agreed=isinstance(data, tf.distribute.DistributedIterator),
        )

    @contextlib.contextmanager
    def reading_together(self, variables: Sequence[Any]) -> Iterator[None]:
        """Opens a context in which `reduce` of these variables gives sums that were formed in one message."""
        summed = [each for each in variables if _is_summed_when_read(each)]
        if summed and not self._read:
            pairs = [(each, self.extended.worker_devices[0]) for each in summed]
            sums = self.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs)
            self._read = {
                id(each): self.experimental_local_results(total)[0] for each, total in zip(summed, sums)
            }
        try:
            yield
        finally:
            self._read = {}

    def require_agreement(self, what, text):
        require_agreement(self._group, what, text)

    def exchange(self, text, what):
        return exchange_texts(self._group, text, name=what)

    def of_first_worker(self, value, what):
        with tf.device("CPU:0"):
            return self._group.broadcast(tf.identity(value), name=f"value of {what}")

    def own_callbacks(self):
        return [DriftCheck(self)]

    def one_op_seed(self):
        return one_op_seed(self._group)

    @contextlib.contextmanager
    def training(self) -> Iterator[None]:
        with self._naming_lost_workers(), self._group.training() as stops:
            before, self._stops = self._stops, stops
            try:
                yield
            finally:
                self._stops = before

    def whole_data(self):
        return self._naming_lost_workers()

    def stops_training(self, wanted):
        return self._stops(wanted)

    def alone(self):
        return self.extended.alone()

    def agreed(self, results):
        self._agreed.update(part.ref() for part in tf.nest.flatten(results) if isinstance(part, tf.Tensor))
        return results

    def _naming_lost_workers(self) -> ContextManager[None]:
        return naming_lost_workers(lambda: not self._group.usable)

    def _teach_keras(self) -> None:
        bridge.install()

    def _require_equal_replicas(self) -> None:
        require_agreement(self._group, "the number of local replicas", str(len(self.extended.worker_devices)))


def _accumulates(optimizer: Any) -> bool:
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    return bool(getattr(optimizer, "gradient_accumulation_steps", None))


def _is_summed_when_read(variable) -> bool:
    return compat.is_sync_on_read_variable(variable) and variable.aggregation == tf.VariableAggregation.SUM


def _resolver(cluster: Optional[Cluster]) -> tf.distribute.cluster_resolver.ClusterResolver:
    if cluster is None:
        return tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec({}))
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({role: list(listed) for role, listed in cluster.addresses.items()}),
        task_type=cluster.task.role,
        task_id=cluster.task.index,
        rpc_layer="grpc",
    )
