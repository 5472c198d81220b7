"""Decides which server holds a variable, and into how many parts it is cut."""

from __future__ import annotations

from typing import Callable, List, Optional, Sequence, Tuple, Union

import tensorflow as tf

from tf_strategies.errors import OptionsError

__all__ = ["Placement", "Placer"]

Placer = Callable[[str, tf.TensorShape, tf.DType, Sequence[int]], int]
Partitioner = Callable[..., Sequence[int]]


class Placement:
    """Places variables. Processes that make the same variables in the same order get the same placements.

    Args:
        servers: the number of servers.
        how: "bytes": on the server with the fewest bytes so far; "round_robin"; or a function of a variable's name, shape, dtype
            and the servers' bytes so far that returns the number of a server.
        partitioner: None, or a function like those of `tf.distribute.experimental.partitioners`: given
            `shape` and `dtype`, it returns the number of parts along each axis. Only the first number may be
            above 1.
    """

    def __init__(
        self, servers: int, how: Union[str, Placer] = "bytes", partitioner: Optional[Partitioner] = None
    ) -> None:
        self._how = how
        self._partitioner = partitioner
        self._placed = 0
        self.bytes_by_server = [0] * servers

    def place(self, name: str, shape: tf.TensorShape, dtype: tf.DType) -> List[Tuple[int, int]]:
        """Returns (server, number of rows) for each part, in order of rows; a scalar has 0 rows."""
        parts = self._number_of_parts(name, shape, dtype)
        rows = shape[0] if shape.rank else 0
        sizes = [rows // parts + (number < rows % parts) for number in range(parts)]
        return [(self._place_one(name, self._part_shape(shape, size), dtype), size) for size in sizes]

    def place_with(self, servers: Sequence[int], rows: Sequence[int], shape: tf.TensorShape, dtype: tf.DType):
        """Places a variable on the servers of another one. Returns the same as `place`."""
        for server, size in zip(servers, rows):
            self.bytes_by_server[server] += _bytes(self._part_shape(shape, size), dtype)
        return list(zip(servers, rows))

    @staticmethod
    def _part_shape(shape: tf.TensorShape, rows: int) -> tf.TensorShape:
        return tf.TensorShape([rows, *shape[1:]]) if shape.rank else shape

    def _place_one(self, name: str, shape: tf.TensorShape, dtype: tf.DType) -> int:
        servers = len(self.bytes_by_server)
        if self._how == "round_robin":
            server = self._placed % servers
        elif callable(self._how):
            server = self._how(name, shape, dtype, tuple(self.bytes_by_server))
            if isinstance(server, bool) or not isinstance(server, int) or not 0 <= server < servers:
                raise OptionsError(
                    f"the placement function put variable {name!r} on server {server!r}; return a number from 0 to {servers - 1}"
                )
        else:
            server = self.bytes_by_server.index(min(self.bytes_by_server))
        self._placed += 1
        self.bytes_by_server[server] += _bytes(shape, dtype)
        return server

    def _number_of_parts(self, name: str, shape: tf.TensorShape, dtype: tf.DType) -> int:
        if self._partitioner is None or not shape.rank:
            return 1
        parts = list(self._partitioner(shape=shape, dtype=dtype))
        if (
            len(parts) != shape.rank
            or any(not _is_count(number) for number in parts)
            or any(number != 1 for number in parts[1:])
        ):
            raise OptionsError(
                f"the partitioner cut variable {name!r} of shape {shape} into {parts}; return a number of parts for each axis, "
                "of which only the first may be above 1"
            )
        return max(1, min(int(parts[0]), shape[0]))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _bytes(shape: tf.TensorShape, dtype: tf.DType) -> int:
    return (shape.num_elements() or 0) * dtype.size
