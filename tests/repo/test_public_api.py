"""What `import tf_strategies` offers, by name: a change here is a change for users."""

from __future__ import annotations

import re

import tf_strategies as tfs

PUBLIC = {
    "AsyncParameterServerStrategy",
    "BootstrapError",
    "ClusterConfigError",
    "CollectiveAllReduceStrategy",
    "CommunicationOptions",
    "DriftError",
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
}


def test_public_names_are_these():
    assert set(tfs.__all__) == PUBLIC
    assert {name for name in PUBLIC if not hasattr(tfs, name)} == set()


def test_version_is_a_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", tfs.__version__)


def test_public_names_are_explained():
    unexplained = {name for name in PUBLIC - {"__version__"} if not getattr(tfs, name).__doc__}
    assert unexplained == set()
