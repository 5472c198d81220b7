"""Walks a graph backwards, also out of the branches that have captured a tensor."""

from __future__ import annotations

from typing import Dict, List

import tensorflow as tf

__all__ = ["GraphInputs"]


class GraphInputs:
    """Finds the tensors from which others are computed, in graphs that are being built."""

    def __init__(self) -> None:
        self._captures: Dict[int, Dict[str, tf.Tensor]] = {}

    def of(self, tensor: tf.Tensor) -> List[tf.Tensor]:
        """Returns the tensors from which the operation of a tensor computes it, without resources and eager values."""
        op, graph = tensor.op, tensor.graph
        if op.type == "Placeholder":
            if id(graph) not in self._captures:
                pairs = getattr(graph, "captures", ())
                self._captures[id(graph)] = {inside.name: outside for outside, inside in pairs}
            outside = self._captures[id(graph)].get(tensor.name)
            inputs = [] if outside is None or hasattr(outside, "numpy") else [outside]
        else:
            inputs = [op.inputs[tensor.value_index]] if op.type == "IdentityN" else list(op.inputs)
        return [each for each in inputs if each.dtype != tf.resource]
