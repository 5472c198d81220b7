"""SGD, LARS and LAMB against their papers in NumPy: values of each step, rows, half precision, saving, servers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import tf_strategies as tfs  # noqa: E402
from tests.exactness.programs.registry import KERAS3, keras  # noqa: E402
from tests.support.partitions import thirds  # noqa: E402
from tf_strategies.keras.model_state import accumulates_gradients  # noqa: E402
from tf_strategies.keras.settings import optimizer_settings  # noqa: E402
from tf_strategies.optimizers import LAMB, LARS, SGD  # noqa: E402

pytestmark = [pytest.mark.keras]

RATES = [0.5, 0.5, 2.0, 0.1, 0.1, 0.0]
SHAPES = {"dense/kernel": (3, 4), "dense/bias": (4,), "zeros/kernel": (2, 3), "still/kernel": (2, 2)}


@keras.saving.register_keras_serializable(package="tests")
def no_still_layers(name: str, shape: Tuple[int, ...]) -> bool:
    return name.startswith("still") or len(shape) == 1


def start() -> Dict[str, np.ndarray]:
    """Returns the weights before the first step; one kernel is 0."""
    random = np.random.default_rng(1)
    return {
        name: random.normal(size=shape) * (not name.startswith("zeros")) for name, shape in SHAPES.items()
    }


def gradients(step: int) -> Dict[str, np.ndarray]:
    """Returns the gradients of a step; those of one kernel are 0 in every second step."""
    random = np.random.default_rng(100 + step)
    return {
        name: random.normal(size=shape) * (step % 2 if name.startswith("still") else 1)
        for name, shape in SHAPES.items()
    }


def rates() -> Any:
    """Returns RATES as a schedule."""
    boundaries = list(range(len(RATES) - 1))
    return keras.optimizers.schedules.PiecewiseConstantDecay(boundaries, RATES)


# --- The papers, in NumPy ---


def momentum_sgd(
    direction: Callable,
    *,
    m: float,
    nesterov: bool = False,
    corrected: bool = False,
) -> Callable:
    """Goyal et al. 2017, equation 10; corrected, the momentum factor is m·γ[t+1]/γ[t], as in their §3."""

    def trained(name: str, excluded: bool) -> Iterator[np.ndarray]:
        w, v, before = start()[name], np.zeros(SHAPES[name]), None
        for step, rate in enumerate(RATES):
            g = gradients(step)[name]
            factor = m * rate / before if corrected and before else m
            scaled = rate * (g if excluded else direction(w, g))
            v = factor * v + scaled
            w = w - (m * v + scaled if nesterov else v)
            before = rate
            yield w

    return trained


def lars(*, eta: float, beta: float, **kwargs: Any) -> Callable:
    """You et al. 2017, algorithm 1."""

    def direction(w: np.ndarray, g: np.ndarray) -> np.ndarray:
        of_w, of_g = np.sqrt((w**2).sum()), np.sqrt((g**2).sum())
        local = eta * of_w / (of_g + beta * of_w) if of_w > 0 and of_g > 0 else 1.0
        return local * (g + beta * w)

    return momentum_sgd(direction, **kwargs)


def lamb(
    *, decay: float, beta_1: float = 0.9, beta_2: float = 0.999, phi: Callable = lambda z: z
) -> Callable:
    """You et al. 2020, algorithm 2."""

    def trained(name: str, excluded: bool) -> Iterator[np.ndarray]:
        w = start()[name]
        m, v = np.zeros_like(w), np.zeros_like(w)
        for step, rate in enumerate(RATES):
            g = gradients(step)[name]
            m, v = beta_1 * m + (1 - beta_1) * g, beta_2 * v + (1 - beta_2) * g * g
            r = m / (1 - beta_1 ** (step + 1)) / (np.sqrt(v / (1 - beta_2 ** (step + 1))) + 1e-6)
            if excluded:
                w = w - rate * r
            else:
                u = r + decay * w
                of_w, of_u = phi(np.linalg.norm(w)), np.linalg.norm(u)
                w = w - rate * (of_w / of_u if of_w > 0 and of_u > 0 else 1.0) * u
            yield w

    return trained


def l2(factor: float) -> Callable:
    return lambda w, g: g + factor * w


CASES = {
    "sgd": (lambda: SGD(rates()), momentum_sgd(l2(0.0), m=0.9, corrected=True)),
    "sgd as in Keras": (
        lambda: SGD(rates(), 0.8, weight_decay=0.1, momentum_correction=False),
        momentum_sgd(l2(0.1), m=0.8),
    ),
    "lars": (
        lambda: LARS(rates(), 0.9, weight_decay=0.1, trust_coefficient=0.02),
        lars(eta=0.02, beta=0.1, m=0.9),
    ),
    "lars nesterov": (
        lambda: LARS(rates(), 0.9, nesterov=True, weight_decay=0.1, trust_coefficient=0.02),
        lars(eta=0.02, beta=0.1, m=0.9, nesterov=True),
    ),
    "lars without momentum and decay": (
        lambda: LARS(rates(), 0.0, trust_coefficient=0.05),
        lars(eta=0.05, beta=0.0, m=0.0),
    ),
    "lars corrected": (
        lambda: LARS(rates(), 0.9, weight_decay=0.1, trust_coefficient=0.02, momentum_correction=True),
        lars(eta=0.02, beta=0.1, m=0.9, corrected=True),
    ),
    "lars excluding": (
        lambda: LARS(rates(), 0.9, weight_decay=0.1, trust_coefficient=0.02, exclude=no_still_layers),
        lars(eta=0.02, beta=0.1, m=0.9),
    ),
    "lamb": (lambda: LAMB(rates(), weight_decay=0.1), lamb(decay=0.1)),
    "lamb without moments": (
        lambda: LAMB(rates(), 0.0, 0.0, weight_decay=0.1),
        lamb(decay=0.1, beta_1=0.0, beta_2=0.0),
    ),
    "lamb with bounds": (
        lambda: LAMB(rates(), 0.8, 0.99, weight_decay=0.0, weight_norm_bounds=(1.0, 1.5)),
        lamb(decay=0.0, beta_1=0.8, beta_2=0.99, phi=lambda z: min(max(z, 1.0), 1.5)),
    ),
}


def variables(dtype: str = "float32") -> List[tf.Variable]:
    return [tf.Variable(value.astype(dtype), name=name) for name, value in start().items()]


@pytest.mark.smoke
@pytest.mark.parametrize("case", CASES)
def test_every_step_is_that_of_the_paper(case: str) -> None:
    make, paper = CASES[case]
    trained, optimizer = variables(), make()
    excluded = no_still_layers if "excluding" in case else lambda name, shape: len(shape) == 1
    expected = {name: paper(name, excluded(name, shape)) for name, shape in SHAPES.items()}
    for step in range(len(RATES)):
        of_step = [tf.constant(each, tf.float32) for each in gradients(step).values()]
        optimizer.apply_gradients(zip(of_step, trained))
        for name, variable in zip(SHAPES, trained):
            wanted = next(expected[name])
            np.testing.assert_allclose(
                variable.numpy(), wanted, rtol=1e-6, atol=1e-6, err_msg=f"{name}, step {step}"
            )


@pytest.mark.parametrize(
    "make", [lambda: LARS(0.5, weight_decay=0.1), lambda: LAMB(0.1)], ids=["lars", "lamb"]
)
def test_rows_are_trained_as_the_dense_gradient_is(make: Callable) -> None:
    random = np.random.default_rng(0)
    start_value = random.normal(size=(6, 3)).astype("float32")
    sparse, dense = tf.Variable(start_value), tf.Variable(start_value)
    by_rows, by_table = make(), make()
    for indices in ([4, 1, 4], [0, 0, 0], [5, 1, 2]):
        values = tf.constant(random.normal(size=(3, 3)), tf.float32)
        whole = np.zeros((6, 3), "float32")
        np.add.at(whole, indices, values.numpy())
        slices = tf.IndexedSlices(values, tf.constant(indices), tf.constant([6, 3]))
        by_rows.apply_gradients([(slices, sparse)])
        by_table.apply_gradients([(tf.constant(whole), dense)])
        np.testing.assert_allclose(sparse.numpy(), dense.numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "make", [lambda: LARS(0.5, weight_decay=0.1), lambda: LAMB(0.1)], ids=["lars", "lamb"]
)
def test_norms_of_half_gradients_and_weights_are_those_of_float32(make: Callable) -> None:
    value = np.full((50, 40), 300.0, "float16")  # its squares are no float16
    trained = {
        kind: tf.Variable(tf.cast(value, kind[0]))
        for kind in [("float32", "float32"), ("float32", "float16")]
    }
    trained["float16", "float16"] = tf.Variable(value)
    for (_, of_gradient), variable in trained.items():
        optimizer = make()
        for _ in range(3):
            optimizer.apply_gradients([(tf.cast(value, of_gradient), variable)])
    reference, *others = trained.values()
    assert not np.array_equal(reference.numpy(), value)
    for other in others:
        precision = 1e-6 if other.dtype == tf.float32 else 2e-3
        np.testing.assert_allclose(other.numpy().astype("float32"), reference.numpy(), rtol=precision)


def model_of(optimizer: Any, dtype: Any = None) -> Any:
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(8, "relu", dtype=dtype), keras.layers.Dense(3, dtype=dtype)]
    model = keras.Sequential([keras.layers.Input((5,)), *layers])
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def fit(model: Any) -> List[np.ndarray]:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(48, 5)).astype("float32"), random.integers(0, 3, 48)
    model.fit(x, y, batch_size=16, shuffle=False, verbose=0)
    return [each.numpy() for each in model.trainable_variables]


def example() -> LARS:
    return LARS(tfs.schedules.PolynomialDecay(1.0, 20), weight_decay=0.1, trust_coefficient=0.1)


@pytest.fixture(scope="module")
def expected() -> List[np.ndarray]:
    """Returns what `example` trains in float32 without a strategy."""
    return fit(model_of(example()))


def test_mixed_precision_trains_float32_weights_under_a_loss_scale(expected: list) -> None:
    scaled = keras.optimizers.LossScaleOptimizer if KERAS3 else keras.mixed_precision.LossScaleOptimizer
    half = model_of(scaled(example()), "mixed_float16")
    for one, other in zip(fit(half), expected):
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other, atol=5e-3)


@pytest.mark.smoke
@pytest.mark.parametrize(
    "make",
    [
        lambda: SGD(0.1, nesterov=True, weight_decay=0.01, momentum_correction=False),
        lambda: LARS(rates(), 0.8, trust_coefficient=0.1, exclude=no_still_layers, clipnorm=1.0),
        lambda: LAMB(0.01, weight_norm_bounds=(0.1, 10.0), name="mine"),
    ],
    ids=["sgd", "lars", "lamb"],
)
def test_a_saved_model_goes_on_as_if_it_had_not_been_saved(make: Callable, tmp_path: Path) -> None:
    model = model_of(make())
    fit(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is type(model.optimizer)
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    assert loaded.optimizer.exclude is model.optimizer.exclude
    for one, other in zip(fit(loaded), fit(model)):
        np.testing.assert_array_equal(one, other)


def test_the_middle_of_an_accumulation_is_known() -> None:
    model = model_of(LAMB(0.1, gradient_accumulation_steps=2))
    found = []
    for _ in range(4):
        model.train_on_batch(tf.ones([2, 5]), tf.ones([2]))
        found.append(accumulates_gradients(model))
    assert found == [True, False, True, False]
    assert not accumulates_gradients(model_of(LAMB(0.1)))


def test_accumulated_gradients_are_one_step() -> None:
    once, twice = (tf.Variable(start()["dense/kernel"].astype("float32")) for _ in range(2))
    plain, accumulating = LAMB(0.1), LAMB(0.1, gradient_accumulation_steps=2)
    for step in range(3):
        gradient = tf.constant(gradients(step)["dense/kernel"], tf.float32)
        plain.apply_gradients([(gradient, once)])
        for factor in (0.5, 1.5):
            accumulating.apply_gradients([(factor * gradient, twice)])
    np.testing.assert_allclose(twice.numpy(), once.numpy(), rtol=1e-6)


def test_a_batch_that_a_loss_scale_skips_is_no_part_of_an_accumulation() -> None:
    inner = SGD(1.0, momentum=0.0, gradient_accumulation_steps=2)
    optimizer = keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=4.0)
    weight = keras.Variable([10.0]) if KERAS3 else tf.Variable([10.0])
    optimizer.build([weight])
    for gradient, expected in ((1.0, 10.0), (np.inf, 10.0), (3.0, 8.0), (1.0, 8.0)):
        scaled = tf.constant([gradient]) * (optimizer.scale_loss(1.0) if KERAS3 else 1.0)
        optimizer.apply_gradients([(scaled, weight)])
        assert float(weight.numpy()[0]) == expected


def test_the_predicate_gets_names_with_those_of_layers() -> None:
    seen = {}
    model = model_of(LARS(0.1, exclude=lambda name, shape: bool(seen.setdefault(name, shape)) and False))
    model.optimizer.build(model.trainable_variables)
    ends = {"/".join(name.split("/")[-1:]): shape for name, shape in seen.items()}
    assert all(name.split("/")[-2].startswith("dense") for name in seen)
    assert ends == {"kernel": (8, 3), "bias": (3,)}


def test_settings_with_a_lambda_are_compared_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, settings = optimizer_settings(LARS(0.1, exclude=lambda name, shape: False))
    assert settings["trust_coefficient"] == "0.001"


def test_biases_of_attention_are_excluded() -> None:
    inputs = keras.layers.Input((3, 4))
    model = keras.Model(inputs, keras.layers.MultiHeadAttention(2, 3)(inputs, inputs))
    optimizer = LAMB()
    excluded = {len(each.shape) for each in model.trainable_variables if optimizer.excludes(each)}
    assert excluded == {1, 2}
    assert sum(map(optimizer.excludes, model.trainable_variables)) == 4


def words_and_classes() -> tuple:
    words = np.random.default_rng(0).integers(0, 10, (48, 4)).astype("int32")
    return words, words[:, 0] % 3


def word_model(optimizer: Any) -> Any:
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Embedding(10, 6), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(3)]
    model = keras.Sequential([keras.layers.Input((4,), dtype="int32"), *layers])
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


@pytest.mark.parametrize(
    ("kind", "make"),
    [(tfs.AsyncParameterServerStrategy, example), (tfs.SyncReplicasStrategy, lambda: LAMB(0.05))],
    ids=["asynchronous LARS", "synchronous LAMB"],
)
def test_servers_train_as_one_process_and_refuse_cut_variables(kind: type, make: Callable) -> None:
    options = {"batch_size": 16, "shuffle": False, "verbose": 0}
    plain = word_model(make())
    plain.fit(*words_and_classes(), **options)
    for partitioner in (None, thirds):
        strategy = kind(options=tfs.ParameterServerOptions(partitioner=partitioner))
        try:
            with strategy.scope():
                model = word_model(make())
            if partitioner is not None:
                with pytest.raises(
                    tfs.OptionsError, match=r"is cut into 3 parts .* make the strategy without"
                ):
                    model.fit(*words_and_classes(), **options)
                continue
            model.fit(*words_and_classes(), **options)
            for one, other in zip(model.get_weights(), plain.get_weights()):
                np.testing.assert_allclose(one, other, atol=1e-6)
        finally:
            strategy.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(0.1, momentum=1.0), "momentum must be a number of at least 0 and below 1; got 1.0"),
        (lambda: LARS(0.1, weight_decay=-1), "weight_decay must be a finite number of at least 0; got -1"),
        (lambda: LARS(0.1, trust_coefficient=0), "trust_coefficient must be a finite number above 0; got 0"),
        (lambda: LARS(0.1, exclude=["bias"]), r"exclude must be None or a function .* got \['bias'\]"),
        (lambda: LAMB(weight_norm_bounds=(2, 1)), r"weight_norm_bounds must be None or two .* got \(2, 1\)"),
        (lambda: LAMB(beta_2="x"), "beta_2 must be a number of at least 0 and below 1; got 'x'"),
    ],
)
def test_bad_arguments_are_refused(make: Callable, message: str) -> None:
    with pytest.raises(tfs.OptionsError, match=message):
        make()
