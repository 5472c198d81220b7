"""Connects `Cluster` with the cluster resolvers of `tf.distribute`."""

from __future__ import annotations

from typing import Optional, Tuple, Union

import tensorflow as tf

from tf_strategies.cluster import Cluster
from tf_strategies.errors import OptionsError
from tf_strategies.other_launchers import warn_if_alone

__all__ = ["ClusterOrResolver", "cluster_and_resolver"]

ClusterOrResolver = Union[Cluster, tf.distribute.cluster_resolver.ClusterResolver]


def cluster_and_resolver(
    given: Optional[ClusterOrResolver],
) -> Tuple[Optional[Cluster], tf.distribute.cluster_resolver.ClusterResolver]:
    """Returns the cluster of a strategy, None for a single process, and its resolver.

    It warns of a single process that another launcher started as one of several.

    Args:
        given: the argument `cluster` of the strategy; None for the cluster of TF_CONFIG. A resolver is returned as it is.

    Raises:
        ClusterConfigError: TF_CONFIG or the resolver is wrong.
        OptionsError: the argument is something else.
    """
    if isinstance(given, tf.distribute.cluster_resolver.ClusterResolver):
        return Cluster.from_resolver(given), given
    if given is not None and not isinstance(given, Cluster):
        raise OptionsError(f"cluster must be a tfs.Cluster or a tf.distribute ClusterResolver; got {given!r}")
    cluster = Cluster.from_tf_config() if given is None else given
    if cluster is None:
        warn_if_alone()
    return cluster, _resolver_of(cluster)


def _resolver_of(cluster: Optional[Cluster]) -> tf.distribute.cluster_resolver.ClusterResolver:
    if cluster is None:
        return tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec({}))
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({role: list(listed) for role, listed in cluster.addresses.items()}),
        task_type=cluster.task.role,
        task_id=cluster.task.index,
        rpc_layer="grpc",
    )
