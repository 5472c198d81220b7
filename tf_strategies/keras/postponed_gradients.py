"""Finds steps that change gradients which are not added up yet, such as by clipping them.

With gradient accumulation and with compression, the gradients of a tape are those of one replica, weighted by its rows. Their sum
over replicas is the gradient of the joint batch. So a step may scale them. Whatever is not linear in them, such as their norm, is
not that of the joint batch.
"""

from __future__ import annotations

import logging
from typing import Dict, Iterable, List, Set, Tuple

import tensorflow as tf

from tf_strategies.keras.graph_inputs import GraphInputs
from tf_strategies.types import TensorOrSlices

__all__ = ["PostponedGradients"]

_log = logging.getLogger("tf_strategies")

_INDEPENDENT, _LINEAR, _NOT_LINEAR = 0, 1, 2
_SHAPES = ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike")
_SAME = (
    "Identity", "Cast", "Reshape", "Neg", "Sum", "Mean", "ExpandDims", "Squeeze", "Transpose", "StopGradient", "AddV2", "Add",
    "AddN", "Sub", "ConcatV2", "Pack", "PreventGradient", "EnsureShape", "BroadcastTo", "UnsortedSegmentSum", "GatherV2",
    "StridedSlice",
)  # fmt: skip
_PRODUCTS = ("Mul", "MulNoNan", "MatMul")
_DIVISIONS = ("RealDiv", "Div", "DivNoNan")
_CHOICES = ("SelectV2", "Select")
_MOST_TENSORS = 20_000
_warned: Set[str] = set()

_Key = Tuple[int, str]


class PostponedGradients:
    """Holds the gradients of a step that are not added up over replicas."""

    def __init__(self) -> None:
        self._noted: Dict[_Key, tf.Tensor] = {}
        self._degrees: Dict[_Key, int] = {}
        self._inputs = GraphInputs()
        self._found = ""

    def note(self, gradients: Iterable[TensorOrSlices]) -> None:
        """Notes gradients of a tape. Eager ones cannot be followed."""
        for each in gradients:
            tensor = each.values if isinstance(each, tf.IndexedSlices) else each
            if isinstance(tensor, tf.Tensor) and not hasattr(tensor, "numpy"):
                self._noted[_key(tensor)] = tensor
                self._degrees.clear()

    def warn_of(self, values: Iterable[object], what: str, rank: int) -> None:
        """Warns, once for each operation, if values are computed from the gradients in another way than by scaling and adding.

        Args:
            values: tensors or IndexedSlices; others are left out.
            what: what the values are, for the message.
            rank: of this worker. The first one warns.
        """
        if not self._noted or rank:
            return
        for each in values:
            tensor = each.values if isinstance(each, tf.IndexedSlices) else each
            if not isinstance(tensor, tf.Tensor) or hasattr(tensor, "numpy"):
                continue
            if self._degree(tensor) == _NOT_LINEAR and f"{what} {self._found}" not in _warned:
                _warned.add(f"{what} {self._found}")
                _log.warning(
                    "A step computes %s from its gradients by %s. With gradient_accumulation_steps, and with compression, these "
                    "are not added up over the replicas yet, so it is not what one process computes. Clip by clipnorm=, "
                    "global_clipnorm= or clipvalue= of the optimizer; see docs/losses_and_train_steps.md, 'In fit, write "
                    "for one process'",
                    what,
                    self._found,
                )

    def _degree(self, tensor: tf.Tensor) -> int:
        """Returns how a tensor depends on the noted gradients."""
        to_see: List[tf.Tensor] = [tensor]
        while to_see and len(self._degrees) < _MOST_TENSORS:
            here = to_see[-1]
            if _key(here) in self._degrees:
                to_see.pop()
                continue
            sources = [] if _key(here) in self._noted else self._sources(here)
            missing = [each for each in sources if _key(each) not in self._degrees]
            if missing:
                to_see += missing
                continue
            self._degrees[_key(to_see.pop())] = self._degree_by(here, sources)
        return self._degrees.get(_key(tensor), _INDEPENDENT)

    def _degree_by(self, tensor: tf.Tensor, sources: List[tf.Tensor]) -> int:
        if _key(tensor) in self._noted:
            return _LINEAR
        degrees = [self._degrees[_key(each)] for each in sources]
        highest, kind = max(degrees, default=_INDEPENDENT), tensor.op.type
        if highest != _LINEAR:
            return highest
        is_linear = (
            kind in (*_SAME, "IdentityN", "Placeholder")
            or (kind in _PRODUCTS and min(degrees) == _INDEPENDENT)
            or (kind in _DIVISIONS and degrees[1] == _INDEPENDENT)
            or (kind in _CHOICES and degrees[0] == _INDEPENDENT)
        )
        if not is_linear:
            self._found = str(kind)
        return _LINEAR if is_linear else _NOT_LINEAR

    def _sources(self, tensor: tf.Tensor) -> List[tf.Tensor]:
        return [] if tensor.op.type in _SHAPES else self._inputs.of(tensor)


def _key(tensor: tf.Tensor) -> _Key:
    return id(tensor.graph), tensor.name
