"""Bundles what a worker writes to a server for one step: a large tensor, rows, or several small tensors as one."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any, Dict, Hashable, Iterable, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies.parameter_server.variables.parts import Part
from tf_strategies.parameter_server.variables.small_tensors import is_small, join, take_apart

__all__ = ["Bundle", "Contribution", "bundles_of"]

Name = Tuple[str, int]
# One update: its key, whether it is a gradient, and for each part of the variable the piece in a list.
Contribution = Tuple[str, bool, Sequence[Tuple[Part, List[Any]]]]


@dataclasses.dataclass
class Bundle:
    """Pieces for one server: of one dtype, and all gradients or none.

    Attributes:
        device: of the server.
        dtype: of the pieces.
        is_gradient: whether they are gradients.
        pieces: by name: the key of an update, and where its part begins.
    """

    device: str
    dtype: tf.DType
    is_gradient: bool
    pieces: Dict[Name, Any]

    @property
    def key(self) -> str:
        """Tells what is in it, the same on every worker."""
        names = [f"{key}/{start}" for key, start in self.pieces]
        return names[0] if len(names) == 1 else f"{names[0]}+{zlib.crc32(' '.join(names).encode()):08x}"

    @property
    def rows(self) -> Optional[tf.IndexedSlices]:
        """The one piece, where it is rows."""
        (piece, *_) = self.pieces.values()
        return piece if isinstance(piece, tf.IndexedSlices) else None

    @property
    def shape(self) -> tf.TensorShape:
        """Of what `value` returns, unless that is rows."""
        shapes = [piece.shape for piece in self.pieces.values()]
        if len(shapes) == 1:
            return shapes[0]
        return tf.TensorShape([sum(shape.num_elements() for shape in shapes)])

    def value(self) -> Any:
        """Returns what travels: the one piece as it is, or all as one vector."""
        pieces = list(self.pieces.values())
        if len(pieces) == 1:
            return pieces[0]
        with tf.device(self.device if pieces[0].device == self.device else None):
            return join(pieces)

    def members_of(self, value: Any) -> Dict[Name, Any]:
        """Returns the value of each piece, by name, on the device of the bundle."""
        if len(self.pieces) == 1:
            return dict.fromkeys(self.pieces, value)
        with tf.device(self.device):
            return dict(zip(self.pieces, take_apart(value, [piece.shape for piece in self.pieces.values()])))


def bundles_of(contributions: Iterable[Contribution]) -> List[Bundle]:
    """Returns what each server gets of these; what it has already is not put together with what is to come."""
    found: Dict[Hashable, Bundle] = {}
    for key, is_gradient, pieces in contributions:
        for part, (piece,) in pieces:
            together = not isinstance(piece, tf.IndexedSlices) and is_small(piece)
            is_there = together and piece.device == part.device
            alone = None if together else (key, part.start)
            where = (part.device, piece.dtype, is_gradient, is_there, alone)
            bundle = found.setdefault(where, Bundle(part.device, piece.dtype, is_gradient, {}))
            bundle.pieces[key, part.start] = piece
    return list(found.values())
