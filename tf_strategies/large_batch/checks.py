"""`check`: looks for the known pitfalls of large batches."""

from __future__ import annotations

import logging
from typing import List, Optional, Set

import tensorflow as tf

from tf_strategies.arguments import count
from tf_strategies.errors import OptionsError
from tf_strategies.keras.types import Model
from tf_strategies.large_batch.finding import Finding
from tf_strategies.large_batch.of_data import batch_size_of, find_own_shuffles
from tf_strategies.large_batch.of_model import find_in_model, find_wrong_statistics

__all__ = ["check"]

_log = logging.getLogger("tf_strategies")
_told: Set[str] = set()


def check(
    model: Model,
    strategy: Optional[tf.distribute.Strategy] = None,
    data: Optional[tf.data.Dataset] = None,
    *,
    batch_size: Optional[int] = None,
) -> List[Finding]:
    """Warns of known pitfalls of training with large batches, each once in a process, and returns them.

    These pitfalls are found:

    - Weight decay on biases, or on γ and β of normalizations, by the optimizer or by regularizers.
    - `loss_weights` that scale the whole loss.
    - A loss that is a sum over the rows.
    - Residual blocks in which no batch normalization starts with γ = 0. Only functional models show their blocks.
    - Statistics of batch normalization over fewer than 16 or more than 256 rows. This needs `data` or `batch_size`, but for
      `synchronized=True`.
    - A shuffle for each worker. This needs `data`, and a strategy of several workers that train synchronously.

    A loss that a `train_step` of your own scales or sums, and a shuffle inside of a generator, cannot be seen.

    Args:
        model: a built model. What is read from `compile` is left out for a model that has not been compiled.
        strategy: the strategy that trains the model; by default the one in whose scope it was made.
        data: the dataset for `fit`, as it is before the strategy splits it.
        batch_size: the batch size for `fit`, if it gets arrays.

    Returns:
        The findings, in the order above; an empty list if there are none.

    Raises:
        OptionsError: `data` is no tf.data.Dataset, or `batch_size` is no whole number.

    References:
        Goyal et al. 2017, "Accurate, large minibatch SGD: training ImageNet in 1 hour", §2.3, §3 and §5.1. He et al. 2019, "Bag
        of tricks for image classification", §3.1.

    Example:
        >>> model.compile("sgd", keras.losses.MeanSquaredError(reduction="sum"))
        >>> for finding in tfs.large_batch.check(model):
        ...     print(finding.pitfall)
        sum of gradients
    """
    if data is not None and not isinstance(data, tf.data.Dataset):
        raise OptionsError(f"data must be a tf.data.Dataset; got {data!r}. For arrays give batch_size")
    if strategy is None:
        strategy = getattr(model, "distribute_strategy", None) or tf.distribute.get_strategy()
    replicas = int(strategy.num_replicas_in_sync)
    workers = int(getattr(strategy, "size", 1))
    found: List[Optional[Finding]] = [*find_in_model(model)]

    batch = None if batch_size is None else count("batch_size", batch_size)
    if data is not None and batch is None:
        batch = batch_size_of(data)
    rows = None if batch is None else max(batch // replicas, 1)
    found.append(find_wrong_statistics(model, replicas, rows, None if rows is None else rows * replicas))

    if data is not None and workers > 1 and replicas > 1:
        found.append(find_own_shuffles(data))
    findings = [finding for finding in found if finding is not None]
    for finding in findings:
        if str(finding) not in _told:
            _told.add(str(finding))
            _log.warning("%s", finding)
    return findings
