"""Collects what a worker knows before it meets the others: the cluster, the secret and its certificate."""

from __future__ import annotations

from tf_strategies.addresses import split_address
from tf_strategies.cluster import Cluster
from tf_strategies.errors import BootstrapError
from tf_strategies.native.endpoints import Settings
from tf_strategies.options import CommunicationOptions
from tf_strategies.secret import read_secret, warn_without_secret
from tf_strategies.tls import TlsFiles, read_tls

__all__ = ["settings_of"]


def settings_of(cluster: Cluster, options: CommunicationOptions) -> tuple[Settings, TlsFiles | None]:
    """Returns the settings of this worker, and its certificate for TLS, or None. Logs a warning if anyone may join.

    Args:
        cluster: the cluster.
        options: the options of communication.

    Raises:
        BootstrapError: this task is not a worker.
        ClusterConfigError: the file of the secret or the certificates of TLS cannot be used.
    """
    if cluster.rank is None:
        raise BootstrapError(
            f"{cluster.name_of(cluster.task)} is not a worker: it takes no part in collectives"
        )
    addresses = [cluster.address_of(task) for task in cluster.worker_tasks]
    secret, tls = read_secret(), read_tls(options.security)
    if not secret and tls is None:
        warn_without_secret(addresses)
    settings = Settings(
        names=[cluster.name_of(task) for task in cluster.worker_tasks],
        hosts=[split_address(address)[0] for address in addresses],
        rank=cluster.rank,
        timeout=options.timeout,
        secret=secret,
        tls_folder="" if tls is None else tls.folder,
    )
    return settings, tls
