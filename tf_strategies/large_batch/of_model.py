"""Finds the pitfalls that a built and compiled model shows by itself."""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Tuple

from tf_strategies.keras.inspection import (
    compile_arguments,
    decayed_vectors,
    name_of,
    normalizations,
    regularized_vectors,
    residual_sums,
    starts_at_zero,
    takes_joint_statistics,
)
from tf_strategies.keras.types import Model
from tf_strategies.large_batch.finding import Finding
from tf_strategies.types import Structure

__all__ = ["find_in_model", "find_wrong_statistics"]

GOYAL = 'Goyal et al. 2017, "Accurate, large minibatch SGD"'
HE = 'He et al. 2019, "Bag of tricks for image classification"'
FEWEST_ROWS, MOST_ROWS = 16, 256


def find_in_model(model: Model) -> List[Finding]:
    """Returns the findings that need neither a strategy nor data."""
    found = (find(model) for find in (_decay, _scaled_loss, _gamma, _sums))
    return [finding for finding in found if finding is not None]


def find_wrong_statistics(
    model: Model, replicas: int, rows: Optional[int], rows_of_all: Optional[int]
) -> Optional[Finding]:
    """Returns the finding for batch normalizations whose statistics are those of a bad number of rows.

    Args:
        model: the model.
        replicas: the number of replicas that share each update.
        rows: the number of rows of a batch on one replica; None if it is not known.
        rows_of_all: the number of rows of a batch on all replicas; None if it is not known.
    """
    wrong: Dict[str, str] = {}
    for layer in normalizations(model):
        joint = replicas > 1 and takes_joint_statistics(layer)
        count = rows_of_all if joint else rows
        if count is not None and not FEWEST_ROWS <= count <= MOST_ROWS:
            wrong[layer.name] = f"{count} rows"
        elif count is None and joint:
            wrong[layer.name] = "the joint batch, which grows with the number of replicas"
    if not wrong:
        return None
    return Finding(
        "statistics of the wrong batch",
        tuple(wrong),
        f"Batch normalization takes its statistics over {next(iter(wrong.values()))}.",
        f"Keep them at the same number of rows, about 32, whatever the global batch: use synchronized=False and {FEWEST_ROWS} to "
        f"{MOST_ROWS} rows for each replica.",
        f'{GOYAL}, §2.3; Hoffer et al. 2017, "Train longer, generalize better", §4',
    )


def _decay(model: Model) -> Optional[Finding]:
    where = [*map(name_of, decayed_vectors(model)), *regularized_vectors(model)]
    if not where:
        return None
    return Finding(
        "weight decay of vectors",
        tuple(where),
        "Weight decay acts on biases, or on γ and β of normalizations.",
        "Use an optimizer of tfs.optimizers, call exclude_from_weight_decay of Keras's optimizer before training, or remove the "
        "regularizer.",
        f"{GOYAL}, §5.1, and {HE}, §3.1",
    )


def _scaled_loss(model: Model) -> Optional[Finding]:
    weights = [
        value
        for _, value in _flat("loss_weights", compile_arguments(model).get("loss_weights"))
        if isinstance(value, (int, float))
    ]
    if not weights or min(weights) <= 1:
        return None
    return Finding(
        "scaled loss",
        ("loss_weights",),
        f"loss_weights multiply the whole loss by at least {min(weights):g}.",
        "Multiply the learning rate instead, as tfs.schedules.LinearScalingWarmup does: with weight decay, or an optimizer that "
        "divides by norms, the two are not equal.",
        f"{GOYAL}, §3, remark 1",
    )


def _gamma(model: Model) -> Optional[Finding]:
    ends = [
        layer
        for added in residual_sums(model)
        if not any(starts_at_zero(layer) for layer in added.ends)
        for layer in added.ends
        if layer.scale
    ]
    if not ends:
        return None
    return Finding(
        "γ of the last normalization",
        tuple(dict.fromkeys(layer.name for layer in ends)),
        "No batch normalization that ends a residual branch starts with γ = 0.",
        'Give the last one of each block gamma_initializer="zeros", not the one of the shortcut.',
        f"{GOYAL}, §5.1",
    )


def _sums(model: Model) -> Optional[Finding]:
    losses = _flat("loss", compile_arguments(model).get("loss"))
    where = [name for name, loss in losses if getattr(loss, "reduction", "") in ("sum", "none", None)]
    if not where:
        return None
    return Finding(
        "sum of gradients",
        tuple(where),
        "The loss is a sum over the rows, so its gradient grows with the batch.",
        "Take the mean, with reduction='sum_over_batch_size', and scale the learning rate.",
        f"{GOYAL}, §3, remark 3",
    )


def _flat(name: str, value: Structure) -> Iterator[Tuple[str, Structure]]:
    """Yields the values of nested lists and dicts, each with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _flat(f"{name}[{number}]", inner)
    elif value is not None:
        yield name, value
