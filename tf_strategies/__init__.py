"""Distribution strategies for TensorFlow: plug one into Keras `fit`, set TF_CONFIG on each node, train.

Names are imported when first used, so that tools which need no TensorFlow (`tfs-run`) do not load it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tf_strategies._version import __version__
from tf_strategies.cluster import Cluster
from tf_strategies.errors import BootstrapError, ClusterConfigError, DriftError, LaunchError, OptionsError
from tf_strategies.local_sgd import DiLoCo, LocalSGD
from tf_strategies.options import CommunicationOptions, Elastic, ParameterServerOptions

if TYPE_CHECKING:
    from tf_strategies import callbacks, compression, estimator, large_batch, optimizers, schedules
    from tf_strategies.collective import CollectiveAllReduceStrategy
    from tf_strategies.elastic import ElasticState
    from tf_strategies.evaluator import SidecarEvaluator
    from tf_strategies.keras.joint_rows import joint_rows
    from tf_strategies.launcher.launch import launch
    from tf_strategies.native.errors import WorkerLostError
    from tf_strategies.parameter_server import (
        AsyncParameterServerStrategy,
        ServerLostError,
        SyncReplicasStrategy,
    )

__all__ = [
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
    "joint_rows",
    "large_batch",
    "launch",
    "optimizers",
    "schedules",
]

_HOMES = {
    "AsyncParameterServerStrategy": "tf_strategies.parameter_server",
    "CollectiveAllReduceStrategy": "tf_strategies.collective",
    "ElasticState": "tf_strategies.elastic",
    "ServerLostError": "tf_strategies.parameter_server",
    "SidecarEvaluator": "tf_strategies.evaluator",
    "SyncReplicasStrategy": "tf_strategies.parameter_server",
    "WorkerLostError": "tf_strategies.native.errors",
    "joint_rows": "tf_strategies.keras.joint_rows",
    "launch": "tf_strategies.launcher.launch",
}


_SUBPACKAGES = ("callbacks", "compression", "estimator", "large_batch", "optimizers", "schedules")
_WITHOUT_TENSORFLOW = ("launch",)


def __getattr__(name: str) -> Any:
    if name not in _HOMES and name not in _SUBPACKAGES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _WITHOUT_TENSORFLOW:
        from tf_strategies.native import loader

        loader.require_tensorflow()
    if name in _SUBPACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
