"""Gives the names of `tf.estimator`, and prepares the strategies for it.

TensorFlow 2.15 is the last release that has it.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_NONE = (
    "TensorFlow {version} has no Estimator, so there is no tfs.estimator.{name}: TensorFlow 2.15 is the last release that has "
    'it (pip install "tensorflow==2.15.*", or tensorflow-cpu). With Keras the same is '
    "`with strategy.scope(): model = ...; model.compile(...)` and `model.fit(dataset)` on the workers, and "
    "`tfs.SidecarEvaluator(model, data, folder).start()` in the evaluator"
)


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not hasattr(tf, "estimator"):
        raise AttributeError(_NONE.format(version=tf.__version__, name=name))
    return getattr(tf.estimator, name)


def __dir__() -> list[str]:
    return sorted(name for name in dir(getattr(tf, "estimator", None)) if not name.startswith("_"))
