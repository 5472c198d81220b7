"""Implements the common base of the parameter-server strategies: roles, the connection to the servers, the interface to Keras."""

from __future__ import annotations

import contextlib
import itertools
import zlib
from typing import Callable, ContextManager, Iterator, Optional, Sequence

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.cluster import Cluster
from tf_strategies.compression import Compressor
from tf_strategies.compression.base import checked_compressor
from tf_strategies.errors import ClusterConfigError, OptionsError
from tf_strategies.keras import bridge, joint_step, scope_check
from tf_strategies.keras.fit_types import Callback
from tf_strategies.keras.ownership import uncast
from tf_strategies.keras.shared_progress import Pace
from tf_strategies.keras.worker_strategy import WorkerStrategy
from tf_strategies.options import ParameterServerOptions, whole_number
from tf_strategies.parameter_server.cluster.connection import ConnectedServers
from tf_strategies.parameter_server.cluster.epoch_sums import EpochSums
from tf_strategies.parameter_server.cluster.progress import ServerProgress
from tf_strategies.parameter_server.cluster.servers import LocalServers, Servers
from tf_strategies.parameter_server.errors import ServerLostError, explaining_former_devices
from tf_strategies.parameter_server.extended import ParameterServerExtended
from tf_strategies.parameter_server.input import ShareOfBatch
from tf_strategies.parameter_server.repeated_steps import RepeatedSteps
from tf_strategies.parameter_server.server import serve
from tf_strategies.parameter_server.updates.compressed import CompressedPushes
from tf_strategies.parameter_server.updates.step_recorder import StepRecorder
from tf_strategies.parameter_server.updates.update_rule import UpdateRule
from tf_strategies.parameter_server.variables.placement import Placement
from tf_strategies.resolvers import ClusterOrResolver, cluster_and_resolver
from tf_strategies.session_graphs.coordinator import Coordinated, carried_through, is_coordinated
from tf_strategies.session_graphs.side_thread import eagerly
from tf_strategies.types import BatchIterator, TensorLike

__all__ = ["ParameterServerStrategy"]

_REMEDY = 'list at least one "ps" in the cluster, or use CollectiveAllReduceStrategy, which needs none'
_made = itertools.count()


class ParameterServerStrategy(Coordinated, WorkerStrategy, tf.distribute.Strategy):
    """Serves in a `ps` process until the workers are done, and then ends the process.

    Trains in any other process.

    Args:
        kind: the kind of strategy, for messages and names.
        make_rule: makes the update rule, given the servers and the compression.
        pace: how the workers go through their batches.
        described: the arguments that must be equal on all workers, as text.
        compression: the compressor of gradients.
        options: the options of the servers.
        cluster: the cluster, instead of that of TF_CONFIG.
        replicas: in how many places variables are held.
    """

    sums_when_applied = True

    def __init__(
        self,
        kind: str,
        make_rule: Callable[[Servers, Optional[CompressedPushes]], UpdateRule],
        pace: Pace,
        described: str,
        compression: Optional[Compressor],
        options: Optional[ParameterServerOptions],
        cluster: Optional[ClusterOrResolver],
        replicas: int = 1,
    ) -> None:
        options = ParameterServerOptions() if options is None else options
        if not isinstance(options, ParameterServerOptions):
            raise OptionsError(f"options must be a tfs.ParameterServerOptions; got {options!r}")
        if whole_number(replicas) not in (1, 2):
            raise OptionsError(f"replicas must be 1 or 2; got {replicas!r}")
        found, self._cluster_resolver = cluster_and_resolver(cluster)
        self._compression = checked_compressor(compression)
        if self._compression is not None and self._compression.needs_all_workers:
            raise OptionsError(
                f"{type(compression).__name__} does not work with parameter servers, which add up what each worker has sent; use "
                "tfs.CollectiveAllReduceStrategy, or another compressor such as tfs.compression.TopK(0.01)"
            )
        self._servers = _servers_of(
            found,
            kind,
            f"{described}, compression={compression!r}",
            options,
            replicas,
            in_step=pace is Pace.IN_STEP,
        )
        self._has_copies = replicas > 1
        self._compressed: Optional[CompressedPushes] = None
        if compression is not None:
            workers = self._servers.size if pace is not Pace.OWN else 1
            self._compressed = CompressedPushes(compression, self._servers, workers=workers)
        self._rule = make_rule(self._servers, self._compressed)
        self._shuffles = itertools.count()
        self._fits_kept = itertools.count()
        self._fits_begun = itertools.count()
        self._sums: Optional[EpochSums] = None
        self._takes_part = False
        self._pace = pace
        super().__init__(
            ParameterServerExtended(
                self,
                servers=self._servers,
                placement=Placement(len(self._servers.devices), options.placement, options.partitioner),
                rule=self._rule,
            )
        )
        self._repeated: Optional[RepeatedSteps] = None
        if self._servers.generation is not None and pace is Pace.IN_STEP:
            self._repeated = self._repeated_steps()
        bridge.install()
        scope_check.opened(self)

    def _repeated_steps(self) -> RepeatedSteps:
        recorder = StepRecorder(self._servers.device, self.extended.own_variables)
        repeated = RepeatedSteps(self._servers, recorder)
        self.extended.recorder = recorder
        self.extended.access.on_write = repeated.note_write
        self._servers.on_return = repeated.repeat
        return repeated

    @property
    def rank(self) -> int:
        """This worker's number, from 0 (the chief) to `size` - 1."""
        return self._servers.rank

    @property
    def size(self) -> int:
        """The number of workers."""
        return self._servers.size

    @property
    def is_chief(self) -> bool:
        """Whether this process is the chief: the worker of rank 0. An evaluator is not."""
        return self.rank == 0 and self._cluster_resolver.task_type != "evaluator"

    @property
    def cluster_resolver(self) -> tf.distribute.cluster_resolver.ClusterResolver:
        """The resolver of the cluster and of this task."""
        return self._cluster_resolver

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of gradients that make a step; 1 within a step of Keras, and for asynchronous updates."""
        return 1 if joint_step.current_step() is not None else self.extended._num_replicas_in_sync

    @contextlib.contextmanager
    def joint_steps(self, model, data, *, trains, sums_logs):
        del sums_logs
        repeatable: ContextManager[BatchIterator] = contextlib.nullcontext(data)
        if self._repeated is not None and trains:
            repeatable = self._repeated.calling(model, data)
        with self.extended.joint_steps(model, trains=trains), repeatable as given:
            yield given

    def name_of(self, rank: int) -> str:
        return self._servers.name_of_worker(rank)

    def apply_if_finite(self, finite, apply, skip):
        self._rule.apply_if_finite(finite, apply, skip)

    def name_variables(self, variables):
        for variable in variables if self._compressed is not None else ():
            if hasattr(variable, "path"):
                self._compressed.name(variable.value, variable.path)

    def as_sent(self, value, variable):
        if self._compressed is None:
            return value
        self.name_variables([variable])
        return self._compressed.rounded(value, uncast(getattr(variable, "_value", variable)))

    def scope(self):
        """Returns a context in which variables are made on the servers, as `tf.distribute.Strategy.scope` does."""
        bridge.install()
        self.extended.access.begin_model()
        if is_coordinated() and not self._takes_part:
            return self._coordinated_scope()
        return super().scope()

    @contextlib.contextmanager
    def _coordinated_scope(self) -> Iterator[tf.distribute.Strategy]:
        """Opens the outermost scope, in which Estimator builds the graph and trains."""
        if self._has_copies:
            raise OptionsError(
                "replicas=2 is for Keras: graphs that sessions run do not go on after a server was lost; leave replicas out with "
                "Estimator, whose checkpoints continue training"
            )
        with contextlib.ExitStack() as stack:
            stack.enter_context(carried_through())
            stack.enter_context(self._servers.detecting_failures())
            stack.enter_context(self._taking_part())
            stack.enter_context(tf.device(self._servers.device))
            yield stack.enter_context(super().scope())

    @contextlib.contextmanager
    def _taking_part(self) -> Iterator[None]:
        """Opens a context in which this worker trains, and other workers may wait for it."""
        self._takes_part = True
        try:
            eagerly(self._begin_training)
            yield
        except tf.errors.OpError:
            raise  # a lost server cannot be told
        except BaseException:
            with contextlib.suppress(ServerLostError, tf.errors.OpError):
                eagerly(self._leave_fit)
            raise
        finally:
            self._takes_part = False
        eagerly(self._leave_fit)

    def _begin_training(self) -> None:
        """Tells the servers that this worker trains from now on."""
        raise NotImplementedError

    def close(self) -> None:
        """Tells the servers that this worker has finished. The end of the program does so, too."""
        scope_check.closed(self)
        self._servers.close()

    @property
    def deals_batches(self) -> bool:
        context = self.extended.distributor.context
        return context.num_input_pipelines > 1 and context.num_replicas_in_sync == 1

    @contextlib.contextmanager
    def whole_data(self):
        before, self._sums = self._sums, None
        try:
            detecting, whole = self._servers.detecting_failures(), self.extended.distributor.whole()
            with detecting, whole, explaining_former_devices():
                yield
        finally:
            self._sums = before

    @contextlib.contextmanager
    def training(self):
        self._sums = EpochSums(self._servers, next(self._fits_begun), in_step=self._pace is Pace.IN_STEP)
        repeatable = contextlib.nullcontext() if self._repeated is None else self._repeated.fitting()
        try:
            detecting, fitting = self._servers.detecting_failures(), self.extended.distributor.fitting()
            with detecting, fitting, self._taking_part(), repeatable, explaining_former_devices():
                yield
        finally:
            self._sums = None

    def _leave_fit(self) -> None:
        self._servers.call(lambda: self._servers.membership.leave(finished=False))

    def batch_of(self, element):
        return element.batch if isinstance(element, ShareOfBatch) else element

    def own_callbacks(self) -> Sequence[Callback]:
        return [] if self._sums is None else [self._sums]

    @contextlib.contextmanager
    def counted_by_all(self, variables):
        summed = [each for each in variables if each.aggregation == tf.VariableAggregation.SUM]
        if self._sums is None or not summed:
            yield
            return
        own = [variable.numpy() for variable in summed]
        try:
            _assign(summed, self._servers.call(self._sums.add_up, own))
            yield
        finally:
            _assign(summed, own)

    def progress_of_fit(self) -> ServerProgress:
        return ServerProgress(self._servers, next(self._fits_kept), self._pace)

    def alone(self):
        return self.extended.alone()

    def call(self, function, *args):
        return self._servers.attempt(function, *args)

    @property
    def generation(self):
        return self._servers.generation

    def recover(self, error, generation):
        if self._repeated is not None and self._repeated.is_repeating:
            return False  # it begins again by itself
        return self._servers.recover(error, generation)

    def data_after_loss(self, data):
        return (
            super().data_after_loss(data) if self._repeated is None else self._repeated.data_after_loss(data)
        )

    @contextlib.contextmanager
    def one_op_seed(self) -> Iterator[int]:
        seed = zlib.crc32(f"{self._servers.name} {next(self._shuffles)}".encode())
        seeded = (
            compat.seeded_ops(seed % (2**31 - 1)) if compat.op_seed() is None else contextlib.nullcontext()
        )
        with seeded:
            yield seed


def _assign(variables: Sequence[tf.Variable], values: Sequence[TensorLike]) -> None:
    for variable, value in zip(variables, values):
        variable.assign(value)


def _servers_of(
    cluster: Optional[Cluster],
    kind: str,
    described: str,
    options: ParameterServerOptions,
    replicas: int,
    *,
    in_step: bool,
) -> Servers:
    name = f"{kind}/{next(_made)}"
    if cluster is None or cluster.task.role == "evaluator":
        return LocalServers(name)
    if "ps" not in cluster.addresses:
        raise ClusterConfigError(f"TF_CONFIG names no parameter server, which {kind} needs; {_REMEDY}")
    if replicas > len(cluster.addresses["ps"]):
        raise ClusterConfigError(
            "replicas=2 keeps the copy of a server on another one, and TF_CONFIG names only one; list at least two "
            '"ps" in the cluster'
        )
    if cluster.task.role == "ps":
        serve(cluster, options, replicas, in_step=in_step)
    return ConnectedServers(
        cluster,
        name,
        f"{kind}({described}), {options.describe()}",
        options,
        replicas=replicas,
    )
