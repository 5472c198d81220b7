"""Defines a worker's view of the parameter servers: their devices, their variables, and the other workers."""

from __future__ import annotations

import abc
import contextlib
import time
from typing import Callable, ContextManager, List, Optional

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.errors import BootstrapError
from tf_strategies.parameter_server.cluster.membership import Membership
from tf_strategies.parameter_server.cluster.transport import Transport
from tf_strategies.types import Result, Structure, TensorLike

__all__ = ["LocalServers", "Servers"]

_POLL_SECONDS = 0.02


class Servers(abc.ABC):
    """Defines the interface to the parameter servers.

    Attributes:
        name: a name for the state that the workers share, the same on all of them. It makes names of
            variables unique.
        rank: this worker's number among the workers that train. Worker 0 makes the initial values.
        size: the number of workers that train.
        device: the device on which this worker computes.
        devices: the devices of the servers, in order.
        timeout: the number of seconds to wait for another process.
        session_target: the target of a tf.compat.v1.Session that reaches the servers.
        membership: this worker's entry in the ledgers of the servers.
        transport: carries tensors to and from the servers.
        on_return: is called when lost servers have come back.
        last_lost: the name of the server that was lost last, for messages.
    """

    on_return: Callable[[], None] = staticmethod(lambda: None)
    last_lost = "a server"
    name: str
    rank: int
    size: int
    device: str
    devices: List[str]
    timeout: float
    session_target: str
    membership: Membership
    transport: Transport

    @abc.abstractmethod
    def agree(self, what: str, text: str) -> None:
        """Raises ValueError if another worker has given a different text for the same subject."""

    @abc.abstractmethod
    def name_of_worker(self, rank: int) -> str:
        """Returns how messages name a worker."""

    @abc.abstractmethod
    def detecting_failures(self) -> ContextManager[None]:
        """Opens a context in which waiting for a lost server ends with a ServerLostError."""

    @abc.abstractmethod
    def call(self, function: Callable[..., Result], *args: Structure) -> Result:
        """Calls a tf.function that uses the servers."""

    def attempt(self, function: Callable[..., Result], *args: Structure) -> Result:
        """Does the same as `call`, but does not call the function again after a lost server has come back."""
        return self.call(function, *args)

    @property
    def generation(self) -> Optional[int]:
        """The number of times that lost servers have come back, after which functions are traced again; None: they never do."""
        return None

    def recover(self, error: Exception, generation: Optional[int]) -> bool:
        """Waits until a lost server has come back, if it was the cause of an error.

        Args:
            error: the error of a call.
            generation: the `generation` when the call began.

        Returns:
            False if the error has another cause, or the variables of the server are lost.

        Raises:
            ServerLostError: the server has not come back in time, or without its variables.
        """
        del error, generation
        return False

    @abc.abstractmethod
    def require_all(self) -> None:
        """Raises ServerLostError if a server is lost."""

    @abc.abstractmethod
    def close(self) -> None:
        """Tells the servers that this worker has finished."""

    def shared_variable(self, server: int, name: str, initial: tf.Tensor) -> tf.Variable:
        """Returns a variable on a server that all workers share by name. It starts with the value of worker 0.

        Raises:
            BootstrapError: worker 0 has not made it within the timeout.
        """
        with tf.device(self.devices[server]):
            variable = self.named_variable(server, name, initial.shape, initial.dtype)
            self._initialize(variable, initial, name)
        return variable

    def named_variable(self, server: int, name: str, shape: tf.TensorShape, dtype: tf.DType) -> tf.Variable:
        """Does the same as `shared_variable`, but it has no value until a worker assigns one."""
        with tf.device(self.devices[server]):
            return compat.BaseResourceVariable(
                trainable=False,
                shape=shape,
                dtype=dtype,
                handle=self._handle(server, name, shape, dtype),
                name=name,
                handle_name=name,
                unique_id=f"{self.name}/{name}",
                in_graph_mode=False,
            )

    def write_entry(self, server: int, variable: tf.Variable, value: TensorLike) -> None:
        """Assigns a variable of a server that this worker alone writes, to tell the other workers something."""
        del server
        variable.assign(value)

    def _handle(self, server: int, name: str, shape: tf.TensorShape, dtype: tf.DType) -> tf.Tensor:
        with tf.device(self.devices[server]):
            return compat.variable_handle(shape, dtype, name, container=self.name, shared_name=name)

    def _initialize(self, variable: tf.Variable, initial: tf.Tensor, name: str) -> None:
        deadline = time.monotonic() + self.timeout
        while not self.call(lambda: bool(variable.is_initialized())):
            if self.rank == 0:
                self.call(lambda: variable.assign(initial))
                return
            if time.monotonic() > deadline:
                raise BootstrapError(
                    f"{self.name_of_worker(self.rank)} waited {self.timeout:g} s for "
                    f"{self.name_of_worker(0)} to make variable {name!r}; look at that worker's log, and "
                    f"check that all workers run the same script"
                )
            time.sleep(_POLL_SECONDS)


class LocalServers(Servers):
    """A single process, which holds its variables itself."""

    rank = 0
    size = 1
    timeout = 600.0
    session_target = ""

    def __init__(self, name: str) -> None:
        self.name = name
        self.device = tf.config.list_logical_devices("CPU")[0].name
        self.devices = [self.device]
        self.transport = Transport(self.device)
        self.membership = Membership(
            name, self.devices, rank=0, names=["worker 0"], options="", timeout=self.timeout
        )

    def detecting_failures(self) -> ContextManager[None]:
        return contextlib.nullcontext()

    def call(self, function: Callable[..., Result], *args: Structure) -> Result:
        return function(*args)

    def require_all(self) -> None:
        """Does nothing, because there is no server that could be lost."""

    def close(self) -> None:
        """Does nothing, because there is no server."""

    def agree(self, what: str, text: str) -> None:
        """Does nothing, because there is no other worker."""

    def name_of_worker(self, rank: int) -> str:
        return f"worker {rank}"
