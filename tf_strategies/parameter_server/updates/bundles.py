"""Bundles the values that a worker sends to a server in one step: a large tensor, rows, or several small tensors as one."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Dict, Hashable, Iterable, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies.parameter_server.variables.parts import Part
from tf_strategies.parameter_server.variables.small_tensors import is_small, join, take_apart
from tf_strategies.types import TensorOrSlices

__all__ = ["Bundle", "Contribution", "bundles_of"]

Name = Tuple[str, int]
# One update: its key, whether it is a gradient, and, for each part of the variable, a list with the piece.
Contribution = Tuple[str, bool, Sequence[Tuple[Part, List[TensorOrSlices]]]]


@dataclasses.dataclass
class Bundle:
    """Pieces of updates for one server. All have one dtype, and either all or none are gradients.

    Attributes:
        device: of the server.
        dtype: of the pieces.
        is_gradient: whether they are gradients.
        pieces: the pieces by name, which consists of the key of an update and the first row of its part.
    """

    device: str
    dtype: tf.DType
    is_gradient: bool
    pieces: Dict[Name, TensorOrSlices]

    @property
    def key(self) -> str:
        """Returns a key for the contents, the same on every worker."""
        names = [f"{key}/{start}" for key, start in self.pieces]
        return names[0] if len(names) == 1 else f"{names[0]}+{zlib.crc32(' '.join(names).encode()):08x}"

    @property
    def rows(self) -> Optional[tf.IndexedSlices]:
        """The IndexedSlices, if the bundle consists of rows."""
        (piece, *_) = self.pieces.values()
        return piece if isinstance(piece, tf.IndexedSlices) else None

    @property
    def shape(self) -> tf.TensorShape:
        """The shape of `value`, unless it is rows."""
        shapes = [piece.shape for piece in self.pieces.values()]
        if len(shapes) == 1:
            return shapes[0]
        return tf.TensorShape([sum(shape.num_elements() for shape in shapes)])

    def value(self) -> TensorOrSlices:
        """Returns the value that is sent: a single piece unchanged, or several pieces as one vector."""
        pieces = list(self.pieces.values())
        if len(pieces) == 1:
            return pieces[0]
        with tf.device(self.device if pieces[0].device == self.device else None):
            return join(pieces)

    def members_of(self, value: TensorOrSlices) -> Dict[Name, TensorOrSlices]:
        """Returns the value of each piece, by name, on the device of the bundle."""
        if len(self.pieces) == 1:
            return dict.fromkeys(self.pieces, value)
        with tf.device(self.device):
            return dict(zip(self.pieces, take_apart(value, [piece.shape for piece in self.pieces.values()])))


def bundles_of(contributions: Iterable[Contribution]) -> List[Bundle]:
    """Returns the bundles for all servers. Values that are already on a server are not combined with others."""
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
