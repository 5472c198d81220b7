"""Each pitfall is found in a model that has it, and none in a model that is made as recommended."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, Callable, List

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import tf_strategies as tfs  # noqa: E402
from tests.exactness.programs.registry import KERAS3, keras  # noqa: E402
from tests.support.our_logs import our_messages  # noqa: E402
from tf_strategies.large_batch import check  # noqa: E402

pytestmark = [pytest.mark.keras]

Policy = tf.data.experimental.AutoShardPolicy
FOUR = SimpleNamespace(num_replicas_in_sync=4, size=4)
LOSS = keras.losses.SparseCategoricalCrossentropy


def block(x: Any, gamma: Any = "zeros", project: bool = False, **options: Any) -> Any:
    """A residual block: identity or projection, and two convolutions."""
    norm = keras.layers.BatchNormalization
    y = keras.layers.Conv2D(4, 3, padding="same", use_bias=False)(x)
    y = keras.layers.Activation("relu")(norm(**options)(y))
    y = keras.layers.Conv2D(4, 3, padding="same", use_bias=False)(y)
    y = norm(gamma_initializer=gamma, name=f"last_{len(y.name)}_{id(y)}", **options)(y)
    if project:
        x = norm(name=f"shortcut_{id(y)}", **options)(keras.layers.Conv2D(4, 1, use_bias=False)(x))
    return keras.layers.Activation("relu")(keras.layers.Add()([x, y]))


def recommended(
    *,
    optimizer: Any = None,
    loss: Any = None,
    loss_weights: Any = None,
    blocks: Callable[[Any], Any] = lambda x: block(block(x), project=True),
    head: Any = None,
) -> Any:
    """A model made as docs/large_batches.md says; arguments spoil it."""
    inputs = keras.layers.Input((8, 8, 4))
    x = keras.layers.GlobalAveragePooling2D()(blocks(inputs))
    model = keras.Model(inputs, (head or keras.layers.Dense(3))(x))
    model.compile(
        optimizer or tfs.optimizers.LARS(1.0, weight_decay=1e-4),
        loss or LOSS(from_logits=True),
        loss_weights=loss_weights,
    )
    return model


def found(model: Any, *args: Any, **kwargs: Any) -> List[str]:
    return [finding.pitfall for finding in check(model, *args, **kwargs)]


def rows(batch: int = 128, policy: Any = Policy.AUTO) -> tf.data.Dataset:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return tf.data.Dataset.range(4096).with_options(options).batch(batch)


def excluding() -> Any:
    optimizer = keras.optimizers.AdamW(weight_decay=0.01)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return optimizer


@pytest.mark.smoke
@pytest.mark.parametrize(
    "optimizer",
    [
        None,
        lambda: tfs.optimizers.LAMB(0.01),
        lambda: tfs.optimizers.SGD(0.1, weight_decay=1e-4),
        lambda: keras.optimizers.SGD(0.1, momentum=0.9),
        excluding,
    ],
    ids=["lars", "lamb", "sgd", "Keras's SGD", "AdamW with exclusions"],
)
def test_nothing_is_found_in_what_is_recommended(optimizer: Any, caplog: pytest.LogCaptureFixture) -> None:
    model = recommended(optimizer=optimizer and optimizer())
    for data in (None, rows(), rows().shuffle(9, seed=1), rows(128, Policy.OFF)):
        assert check(model, FOUR, data) == []
    assert check(model, FOUR, batch_size=128) == check(model) == []
    assert our_messages(caplog) == []


def decayed_names(findings: list) -> List[str]:
    return sorted({name.rpartition("/")[2] for finding in findings for name in finding.where})


def test_weight_decay_of_biases_and_normalizations() -> None:
    findings = check(recommended(optimizer=keras.optimizers.AdamW(weight_decay=0.01)))
    assert [each.pitfall for each in findings] == ["weight decay of vectors"]
    assert decayed_names(findings) == ["beta", "bias", "gamma"]
    assert "§5.1" in findings[0].source and "exclude_from_weight_decay" in findings[0].remedy

    only = tfs.optimizers.LARS(1.0, weight_decay=0.1, exclude=lambda name, shape: "gamma" in name)
    assert decayed_names(check(recommended(optimizer=only))) == ["beta", "bias"]
    assert check(recommended(optimizer=tfs.optimizers.LARS(1.0, exclude=lambda name, shape: False))) == []

    head = keras.layers.Dense(3, bias_regularizer="l2", kernel_regularizer="l2", name="head")
    assert decayed_names(check(recommended(head=head))) == ["head.bias_regularizer"]
    normalized = recommended(blocks=lambda x: keras.layers.BatchNormalization(gamma_regularizer="l2")(x))
    assert found(normalized) == ["weight decay of vectors"]


def test_a_loss_scale_hides_no_optimizer() -> None:
    scaled = keras.optimizers.LossScaleOptimizer if KERAS3 else keras.mixed_precision.LossScaleOptimizer
    assert found(recommended(optimizer=scaled(keras.optimizers.AdamW()))) == ["weight decay of vectors"]


@pytest.mark.parametrize(
    ("weights", "pitfalls"), [([4.0], ["scaled loss"]), ([1.0], []), ([0.5], []), (None, [])], ids=str
)
def test_a_loss_that_is_scaled_in_place_of_the_rate(weights: Any, pitfalls: list) -> None:
    assert found(recommended(loss_weights=weights)) == pitfalls


def test_weights_of_several_losses_scale_if_all_do() -> None:
    inputs = keras.layers.Input((4,))
    outputs = [keras.layers.Dense(2, name=name)(inputs) for name in ("a", "b")]
    for weights, pitfalls in (({"a": 2.0, "b": 3.0}, ["scaled loss"]), ({"a": 1.0, "b": 3.0}, [])):
        model = keras.Model(inputs, dict(zip("ab", outputs)))
        model.compile("sgd", {"a": "mse", "b": "mse"}, loss_weights=weights)
        assert found(model) == pitfalls


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_a_sum_in_place_of_a_mean(reduction: str) -> None:
    assert found(recommended(loss=LOSS(from_logits=True, reduction=reduction))) == ["sum of gradients"]
    inputs = keras.layers.Input((4,))
    model = keras.Model(inputs, {name: keras.layers.Dense(2, name=name)(inputs) for name in "ab"})
    model.compile("sgd", {"a": "mse", "b": keras.losses.MeanSquaredError(reduction=reduction)})
    (finding,) = check(model)
    assert finding.where == ("loss.b",)


@pytest.mark.parametrize("project", [False, True], ids=["identity", "projection"])
def test_a_last_gamma_that_is_not_zero(project: bool) -> None:
    (finding,) = check(recommended(blocks=lambda x: block(block(x, "ones", project=project))))
    assert finding.pitfall == "γ of the last normalization"
    assert [name.partition("_")[0] for name in finding.where] == ["shortcut"] * project + ["last"]
    constant = keras.initializers.Constant(0.0)
    assert check(recommended(blocks=lambda x: block(x, constant, project=project))) == []


def test_a_sum_of_operators_and_a_nested_model() -> None:
    def plus(x: Any) -> Any:
        y = keras.layers.BatchNormalization(name="inner")(keras.layers.Conv2D(4, 1)(x))
        return x + y

    inputs = keras.layers.Input((8, 8, 4))
    inner = keras.Model(inputs, plus(inputs))
    (finding,) = check(recommended(blocks=lambda x: block(inner(x))))
    assert finding.where == ("inner",)


def test_a_normalized_shortcut_ends_no_branch() -> None:
    def stem(x: Any) -> Any:
        x = keras.layers.BatchNormalization()(x)
        return keras.layers.Add()([x, keras.layers.Conv2D(4, 1)(x)])

    assert found(recommended(blocks=stem)) == []


def test_statistics_over_too_many_or_too_few_rows() -> None:
    model, pitfall = recommended(), ["statistics of the wrong batch"]
    for batch, expected in ((60, pitfall), (64, []), (1024, []), (1028, pitfall)):
        assert found(model, FOUR, batch_size=batch) == found(model, FOUR, rows(batch)) == expected
    assert found(model, FOUR, rows(1028, Policy.OFF)) == pitfall
    assert found(model, FOUR, rows(1024, Policy.OFF)) == []
    assert found(model, batch_size=512) == pitfall
    without = recommended(blocks=lambda x: keras.layers.LayerNormalization()(x))
    assert found(without, FOUR, batch_size=8192) == []


def test_statistics_over_the_joint_batch() -> None:
    model = recommended(blocks=lambda x: block(x, synchronized=True))
    assert found(model, FOUR) == found(model, FOUR, batch_size=1024) == ["statistics of the wrong batch"]
    assert found(model) == found(model, FOUR, batch_size=128) == []


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (lambda data: data.shuffle(8), True),
        (lambda data: data.shuffle(8, seed=1), False),
        (lambda data: data.with_options(off()).shuffle(8, seed=1), True),
        (lambda data: data.with_options(off()).shard(4, 0).shuffle(8, seed=1), True),
        (lambda data: data.with_options(off()).shuffle(8, seed=1).shard(4, 0), False),
        (lambda data: data.with_options(off()).shuffle(8, seed=1).shard(4, 0).shuffle(2), False),
        (lambda data: data.with_options(off()).shuffle(8).shard(4, 0), True),
        (lambda data: data.with_options(off()), False),
    ],
    ids=[
        "no seed",
        "a seed",
        "own data",
        "shuffled shares",
        "shares of a shuffle",
        "shuffled shares of a shuffle",
        "shares of other shuffles",
        "no shuffle",
    ],
)
def test_a_shuffle_for_each_worker(make: Callable, wrong: bool) -> None:
    model, data = recommended(), make(tf.data.Dataset.range(64)).batch(32)
    assert ("a shuffle for each worker" in found(model, FOUR, data)) is wrong
    assert "a shuffle for each worker" not in found(model, None, data)
    assert "a shuffle for each worker" not in found(
        model, SimpleNamespace(num_replicas_in_sync=1, size=4), data
    )


def off() -> tf.data.Options:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = Policy.OFF
    return options


def test_each_finding_is_told_once_with_its_source(caplog: pytest.LogCaptureFixture) -> None:
    model = recommended(loss_weights=[7.0])
    with caplog.at_level(logging.WARNING, "tf_strategies"):
        assert check(model) == check(model)
    (message,) = our_messages(caplog)
    assert message.startswith(
        "scaled loss (loss_weights): loss_weights multiply the whole loss by at least 7."
    )
    assert "See Goyal et al. 2017" in message


def test_models_that_show_little() -> None:
    class Own(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.norm = keras.layers.BatchNormalization()

        def call(self, x: Any) -> Any:
            return x + self.norm(x)

    assert check(Own()) == check(keras.Sequential([keras.layers.Dense(2)])) == []
    own = Own()
    own.compile(keras.optimizers.AdamW(), "mse")
    own(np.zeros([2, 4], "float32"))
    assert found(own) == ["weight decay of vectors"]


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(
        tfs.OptionsError, match=r"data must be a tf\.data\.Dataset; got \[1\]\. For arrays give batch_size"
    ):
        check(recommended(), data=[1])
    with pytest.raises(tfs.OptionsError, match="batch_size must be a whole number of at least 1; got 0"):
        check(recommended(), batch_size=0)
