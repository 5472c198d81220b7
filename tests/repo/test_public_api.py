"""What `import tf_strategies` offers, by name: a change here is a change for users."""

from __future__ import annotations

import inspect
import re
from typing import Any, Iterator, Tuple

import pytest

import tf_strategies as tfs

PUBLIC = {
    "AsyncParameterServerStrategy",
    "BootstrapError",
    "Cluster",
    "ClusterConfigError",
    "CollectiveAllReduceStrategy",
    "CommunicationOptions",
    "DiLoCo",
    "DriftError",
    "Elastic",
    "ElasticState",
    "LaunchError",
    "LocalSGD",
    "OptionsError",
    "ParameterServerOptions",
    "ServerLostError",
    "SidecarEvaluator",
    "SyncReplicasStrategy",
    "WorkerLostError",
    "__version__",
    "callbacks",
    "compression",
    "estimator",
    "large_batch",
    "joint_rows",
    "launch",
    "optimizers",
    "schedules",
}


def test_public_names_are_these():
    assert set(tfs.__all__) == PUBLIC
    assert {name for name in PUBLIC if not hasattr(tfs, name)} == set()


def test_version_is_a_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", tfs.__version__)


def test_public_names_are_explained():
    unexplained = {name for name in PUBLIC - {"__version__"} if not getattr(tfs, name).__doc__}
    assert unexplained == set()


def public_classes() -> Iterator[Tuple[str, Any]]:
    for name in sorted(PUBLIC - {"estimator"}):
        value = getattr(tfs, name)
        for inner in getattr(value, "__all__", ()):
            yield f"{name}.{inner}", getattr(value, inner)
        if inspect.isclass(value) and value.__module__.startswith("tf_strategies"):
            yield name, value


@pytest.mark.parametrize(("name", "kind"), [pytest.param(*each, id=each[0]) for each in public_classes()])
def test_docstrings_of_classes_name_every_argument(name, kind):
    text = inspect.cleandoc(kind.__doc__)
    first = text.split()[0].rstrip(".,:;")
    assert first[0].isupper() and first.endswith("s"), (
        f"{name} must start with a verb: {text.splitlines()[0]}"
    )
    if not (inspect.isclass(kind) and issubclass(kind, Exception)):
        called = kind.__init__ if inspect.isclass(kind) else kind
        arguments = set(inspect.signature(called).parameters) - {"self"}
        missing = {each for each in arguments if not re.search(rf"^ +{each}: \S", text, re.MULTILINE)}
        assert missing == set()
