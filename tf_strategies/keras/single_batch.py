"""Splits the batches of `train_on_batch`, `test_on_batch` and `predict_on_batch` between the replicas of all workers.

These methods take the global batch on every worker. Each replica takes its share of the rows. The first replicas of all workers
take the first rows, the second replicas the next ones: this is the order in which the results of replicas are joined. No dataset
is made, because that would take much longer than most steps.
"""

from __future__ import annotations

import zlib
from typing import List, Optional, Sequence, Tuple, Union

import numpy as np
import tensorflow as tf
from absl import logging

from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.types import Structure, TensorLike

__all__ = ["as_dataset", "own_rows"]

_SAMPLE_BYTES = 1 << 16

_Component = Union[np.ndarray, tf.Tensor, tf.Variable, tf.RaggedTensor, tf.SparseTensor]


def own_rows(strategy: GroupStrategy, batch: Structure) -> Structure:
    """Returns the rows of this worker's replicas. A collective.

    Args:
        strategy: the strategy of the model.
        batch: a structure of arrays or tensors [rows, ...] with the same number of rows; None stands for no data.

    Returns:
        The structure with tensors; with a value for each replica if this worker has several.

    Raises:
        ValueError: the batches of the workers differ in structure, dtypes or shapes, or components differ in rows.
    """
    structure = tf.nest.map_structure(_as_array, batch)
    flat = [part for part in tf.nest.flatten(structure) if part is not None]
    _agree(strategy, structure, flat)
    rows = _rows(flat)
    local = strategy.replicas // strategy.size
    parts = [
        tf.nest.map_structure(lambda part, at=slice(first, end): _slice(part, at), structure)
        for first, end in _bounds(rows, strategy.replicas)[strategy.rank :: strategy.size]
    ]
    if local == 1:
        return parts[0]
    each = iter(parts)
    return strategy.experimental_distribute_values_from_function(lambda _: next(each))  # type: ignore[attr-defined]


def as_dataset(batch: Sequence[Structure]) -> tf.data.Dataset:
    """Returns a dataset with one element, the batch (x, y, weights), in which y and weights may be None."""
    given = tuple(batch)
    while given[-1] is None:
        given = given[:-1]
    return tf.data.Dataset.from_tensors(_without_lists(given))


def _without_lists(structure: Structure) -> Structure:
    """Returns the structure with tuples instead of lists, because tf.data would stack a list to one tensor."""
    if isinstance(structure, dict):
        return {key: _without_lists(part) for key, part in structure.items()}
    if isinstance(structure, (list, tuple)):
        return tuple(_without_lists(part) for part in structure)
    return structure


def _agree(strategy: GroupStrategy, structure: Structure, flat: List[_Component]) -> None:
    """Makes sure that all workers have batches of one form, and warns if they do not have the same batch."""
    form = str(tf.nest.map_structure(_form, structure))
    sample = zlib.crc32(b"".join(_sample(part) for part in flat))
    texts = strategy.exchange(f"{sample} {form}", "batch")
    forms = [text.partition(" ")[2] for text in texts]
    for rank, other in enumerate(forms):
        if other != forms[0]:
            raise ValueError(
                f"the batch differs between workers: {strategy.name_of(0)} has {forms[0]}, but {strategy.name_of(rank)} has "
                f"{other}; train_on_batch, test_on_batch and predict_on_batch take the same global batch on every worker"
            )
    if len(set(texts)) > 1:
        logging.log_first_n(
            logging.WARNING,
            "The batches given to train_on_batch, test_on_batch or predict_on_batch differ between workers. Each worker takes "
            "its share of the rows of its own batch, and the other rows are not used. Give the same global batch to all workers, "
            "for example by the same seed.",
            1,
        )


def _as_array(part: Optional[TensorLike]) -> Optional[_Component]:
    known = (tf.Tensor, tf.RaggedTensor, tf.SparseTensor, tf.Variable)
    return part if part is None or isinstance(part, known) else np.asarray(part)


def _form(part: Optional[_Component]) -> Optional[str]:
    return None if part is None else f"{tf.as_dtype(part.dtype).name} {list(part.shape)}"


def _sample(part: _Component) -> bytes:
    """Returns some bytes of a dense component, the same for the same component."""
    if isinstance(part, (tf.RaggedTensor, tf.SparseTensor)):
        return b""
    content = np.ascontiguousarray(part)
    if content.dtype.hasobject:
        return repr(content[:16]).encode()
    flat = content.reshape(-1).view(np.uint8) if content.size else content
    return flat[:: flat.size // _SAMPLE_BYTES | 1].tobytes()


def _rows(flat: List[_Component]) -> int:
    if any(len(part.shape) == 0 for part in flat):
        raise ValueError(
            f"a batch has a component that is a scalar, which cannot be split between replicas: {[_form(each) for each in flat]}"
        )
    counts = {int(part.shape[0]) for part in flat}
    if len(counts) != 1:
        raise ValueError(
            f"the components of a batch have {' and '.join(map(str, sorted(counts)))} rows; they must have the same number"
        )
    return counts.pop()


def _bounds(rows: int, replicas: int) -> List[Tuple[int, int]]:
    """Returns the first row of each replica, and the row after its last. Numbers of rows differ by one at most."""
    ends = [rows // replicas * each + min(each, rows % replicas) for each in range(replicas + 1)]
    return list(zip(ends[:-1], ends[1:]))


def _slice(part: Optional[_Component], at: slice) -> Optional[_Component]:
    if part is None:
        return None
    if isinstance(part, tf.SparseTensor):
        shape = part.shape.as_list()
        return tf.sparse.slice(part, [at.start, *[0] * (len(shape) - 1)], [at.stop - at.start, *shape[1:]])
    return part[at] if isinstance(part, tf.RaggedTensor) else tf.convert_to_tensor(part[at])
