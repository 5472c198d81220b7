"""`CollectiveAllReduceStrategy`: synchronous training on many workers without a central node."""

from __future__ import annotations

from typing import Optional, Sequence, Tuple, Union

import tensorflow as tf

from tf_strategies.collective.calls.subgroup import SubgroupCalls
from tf_strategies.collective.exchange.agreement import require_agreement
from tf_strategies.collective.exchange.communication_stats import CommunicationStats
from tf_strategies.collective.extended import CollectiveAllReduceExtended
from tf_strategies.collective.group import form_group
from tf_strategies.collective.group_training import GroupTraining
from tf_strategies.collective.single_worker import SingleWorker
from tf_strategies.compression import Compressor
from tf_strategies.compression.base import checked_compressor
from tf_strategies.errors import OptionsError
from tf_strategies.keras import bridge, scope_check
from tf_strategies.keras.joint_step import current_step
from tf_strategies.local_sgd import LocalSGD
from tf_strategies.options import CommunicationOptions, Elastic
from tf_strategies.resolvers import ClusterOrResolver, cluster_and_resolver
from tf_strategies.session_graphs.coordinator import Coordinated
from tf_strategies.trace.record import Collective, collective_of
from tf_strategies.types import PerReplica, Structure

__all__ = ["CollectiveAllReduceStrategy"]

_STEP_LOSSES = ("mean", "sum")


class CollectiveAllReduceStrategy(
    Coordinated, GroupTraining, SubgroupCalls, tf.distribute.MultiWorkerMirroredStrategy
):
    """Trains synchronously on several workers: all-reduce adds up the gradients of all replicas.

    The workers are the chief and the workers of TF_CONFIG. Each process runs the same script and makes this strategy, which
    waits until all workers are connected. Without TF_CONFIG, with one worker, and in an evaluator, it uses no network.

    Variables that are made in `scope` start with the values of worker 0. They stay bit-identical on all workers. Moving
    averages of batch normalization are averaged over the workers after each step.

    P workers with batches of b rows train as one process with batches of P*b rows. Batch sizes that are given to Keras and to
    `experimental_distribute_dataset` are global.

    The strategy is a subclass of MultiWorkerMirroredStrategy. On TensorFlow 2.15 it can be the `train_distribute` and the
    `eval_distribute` of a tf.estimator.RunConfig; each replica then trains with batches as `input_fn` makes them.

    Args:
        communication_options: the algorithm, the size of packs and the timeout. The defaults suit most.
        compression: one of `tfs.compression`, which reduces the bytes that are sent; the same on all workers. It applies to
            gradients that an optimizer applies. It does not apply to values that you reduce yourself.
        step_losses: the meaning of a loss in the `train_step` of Keras `fit`. "mean": the mean over the rows that the step
            sees, as in a program for one process. Gradients are then those of the mean over the joint batch. "sum": a part of
            a sum over all replicas, which is already divided by the global batch size or by the number of replicas. Loops with
            `strategy.run` always have the second meaning, as with tf.distribute.
        devices: this worker's devices; the same number on each worker. By default all its GPUs, or else its CPU.
        cluster: the workers, instead of those of TF_CONFIG: a `tfs.Cluster` or a `tf.distribute` cluster resolver.
        elastic: a `tfs.Elastic` lets `fit` go on in the same processes when workers are lost. The global batch, and so the
            result, stays as it was, or the batch follows the workers. See docs/elastic.md.
        local_steps: a `tfs.LocalSGD` or `tfs.DiLoCo` lets each worker take several steps of `fit` by itself, after which the
            workers average their weights. Far fewer bytes are sent, and the result is that of another algorithm. See
            docs/local_steps.md.

    Raises:
        ClusterConfigError: TF_CONFIG or `cluster` is wrong, or this task is a parameter server.
        OptionsError: an argument has a value that is not allowed.
        BootstrapError: the workers did not connect within the timeout, or they use different options.

    References:
        Rabenseifner 2004, "Optimization of collective reduction operations" (binary blocks).

    Example:
        >>> strategy = tfs.CollectiveAllReduceStrategy()
        >>> strategy.rank, strategy.size
        (0, 1)
        >>> with strategy.scope():
        ...     model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(1)])
        ...     model.compile("sgd", "mse")
        >>> history = model.fit(dataset, epochs=2, verbose=0)
    """

    _collective_key_base = 0

    def __init__(
        self,
        communication_options: Optional[CommunicationOptions] = None,
        *,
        compression: Optional[Compressor] = None,
        step_losses: str = "mean",
        devices: Optional[Sequence[str]] = None,
        cluster: Optional[ClusterOrResolver] = None,
        elastic: Optional[Elastic] = None,
        local_steps: Optional[LocalSGD] = None,
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
        found, resolver = cluster_and_resolver(cluster)
        if elastic is not None and not isinstance(elastic, Elastic):
            raise OptionsError(f"elastic must be a tfs.Elastic; got {elastic!r}")
        _check_local_steps(local_steps, compression=compression, step_losses=step_losses, elastic=elastic)
        if elastic is not None and elastic.batch == "per_worker" and step_losses == "sum":
            raise OptionsError(
                'Elastic(batch="per_worker") cannot be used with step_losses="sum": such losses are divided by the first global '
                "batch size; return means, and leave step_losses out"
            )
        self._group = form_group(found, options, elastic)
        extended = CollectiveAllReduceExtended(
            self,
            group=self._group,
            options=options,
            compressor=compression,
            devices=devices,
            cluster_resolver=resolver,
            only_me=None if local_steps is None else SingleWorker(self._group.name_of(self._group.rank)),
        )
        self._compression = compression
        tf.distribute.Strategy.__init__(self, extended)
        self._group.join(self)
        self._init_training(step_losses, elastic, local_steps)
        self._require_equal_replicas()
        settings = f"compression={compression!r}, step_losses={step_losses!r}, local_steps={local_steps!r}"
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

    @property
    def local_rank(self) -> int:
        """This worker's number among the workers of its host, from 0 to `local_size` - 1, in the order of the ranks.

        A host is a set of workers that can share memory. Two containers with a network of their own are two hosts.
        """
        return self._group.hosts[: self.rank].count(self._group.hosts[self.rank])

    @property
    def local_size(self) -> int:
        """The number of workers of this worker's host."""
        return self._group.hosts.count(self._group.hosts[self.rank])

    @property
    def is_chief(self) -> bool:
        """Whether this process is the chief: the worker of rank 0. An evaluator is not."""
        return bool(self.extended.should_checkpoint)

    def name_of(self, rank: int) -> str:
        """Returns the name of a worker in messages, such as `worker 1 (10.0.0.2:2222)`."""
        return self._group.name_of(rank)

    def communication_stats(self) -> CommunicationStats:
        """Returns what this worker has sent and received since it joined the group, by algorithm and transport."""
        return CommunicationStats.from_counters(self._group.stats())

    def recorded_collectives(self) -> Tuple[Collective, ...]:
        """Returns the last 1024 collectives of this worker, the oldest first, as `tfs-trace` reads them.

        Each has its kind, name, algorithm, dtype and bytes, and the times of its stages on the clock of
        `time.monotonic_ns`. The call takes some milliseconds.
        """
        return tuple(map(collective_of, self._group.records().get("collectives", ())))

    def close(self) -> None:
        """Leaves the group. Later collectives of this strategy fail.

        The connection stays open while another strategy of this process uses it. It is also closed when the
        program ends.
        """
        scope_check.closed(self)
        self._group.leave(self)

    def scope(self):
        """Returns a context in which variables are made on all workers, as `tf.distribute.Strategy.scope` does."""
        self._teach_keras()
        return super().scope()

    def run(self, fn, args=(), kwargs=None, options=None):
        """Runs `fn` on each replica of this worker, as `tf.distribute.Strategy.run` does.

        Raises:
            WorkerLostError: another worker was lost while this one waited for it.
        """
        self._agreed.clear()
        with self._naming_lost_workers():
            return super().run(fn, args=args, kwargs=kwargs, options=options)

    def experimental_distribute_dataset(
        self, dataset: tf.data.Dataset, options: Optional[tf.distribute.InputOptions] = None
    ) -> tf.distribute.DistributedDataset:
        """Splits a dataset between all replicas, as `tf.distribute.Strategy.experimental_distribute_dataset` does.

        Args:
            dataset: with batches of the global size; the same on all workers, unless its AutoShardPolicy is OFF.
            options: a tf.distribute.InputOptions.

        Raises:
            ValueError: the datasets of the workers differ.
            WorkerLostError: another worker was lost while this one waited for it.
        """
        self._teach_keras()
        with self._naming_lost_workers():
            return super().experimental_distribute_dataset(self._as_batches(dataset), options)

    def gather(self, value: PerReplica, axis: int) -> tf.Tensor:
        """Returns the values of all replicas of all workers, concatenated along an axis.

        Args:
            value: a value for each replica, of equal shapes but for the axis.
            axis: the axis.
        """
        with self._naming_lost_workers():
            return super().gather(value, axis)

    def reduce(
        self, reduce_op: Union[str, tf.distribute.ReduceOp], value: Structure, axis: Optional[int] = None
    ) -> Structure:
        """Returns the sum or mean of a value over the replicas of all workers, as `tf.distribute.Strategy.reduce` does.

        A value that is already equal on all workers is returned unchanged. The mean over axis 0 of scalars is
        their mean.
        """
        if id(value) in self._read:
            return self._read[id(value)]
        parts = self.experimental_local_results(value)
        if all(isinstance(part, tf.Tensor) and part.ref() in self._agreed for part in parts):
            return parts[0]
        if axis == 0 and all(part.shape.rank == 0 for part in parts):
            axis = None
        counts_workers = any(
            part.shape.rank and part.dtype.is_integer for part in parts
        )  # by TensorFlow's iterators
        if self._takes_local_step and not counts_workers:
            with self.extended.alone_in_step():
                return super().reduce(reduce_op, value, axis)
        with self._naming_lost_workers():
            return super().reduce(reduce_op, value, axis)

    def _teach_keras(self) -> None:
        bridge.install()

    def _require_equal_replicas(self) -> None:
        require_agreement(self._group, "the number of local replicas", str(len(self.extended.worker_devices)))


def _check_local_steps(
    local_steps: Optional[LocalSGD],
    *,
    compression: Optional[Compressor],
    step_losses: str,
    elastic: Optional[Elastic],
) -> None:
    """Raises an OptionsError if local steps cannot be used, or not with the other options."""
    if local_steps is None:
        return
    if not isinstance(local_steps, LocalSGD):
        raise OptionsError(f"local_steps must be a tfs.LocalSGD or a tfs.DiLoCo; got {local_steps!r}")
    remedies = {
        "compression": (compression, "gradients are not sent; use quantize= of local_steps"),
        "elastic and fragments or overlap_steps": (
            elastic is not None and (local_steps.fragments > 1 or local_steps.overlap_steps),
            "after a loss the workers go back to an average of all weights; leave fragments and overlap_steps out",
        ),
        'Elastic(batch="per_worker")': (
            elastic is not None and elastic.batch == "per_worker",
            "each worker takes its steps with its own rows and learning rate anyway; leave batch out",
        ),
        'step_losses="sum"': (
            step_losses == "sum",
            "a worker that trains by itself needs the mean over its rows; return means, and leave step_losses out",
        ),
    }
    for name, (value, why) in remedies.items():
        if value:
            raise OptionsError(f"local_steps cannot be used with {name}: {why}")
