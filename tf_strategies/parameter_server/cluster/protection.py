"""Decides how the TensorFlow server of this task is kept from strangers."""

from __future__ import annotations

from typing import Optional

from absl import logging

from tf_strategies.addresses import is_loopback, split_address
from tf_strategies.cluster import Cluster
from tf_strategies.errors import BootstrapError
from tf_strategies.gateway import Gateway, Security, open_data_connection, reason_of_refusal
from tf_strategies.native import channel
from tf_strategies.native.channel_opening import DataConnection
from tf_strategies.native.confine import Confinement
from tf_strategies.secret import read_secret, warn_of_servers
from tf_strategies.tls import read_tls

__all__ = ["Protection"]


class Protection:
    """Protects the TensorFlow server of this task.

    In a cluster of loopback addresses the server is confined to the loopback interface. In a cluster with a secret or TLS it
    has a gateway. In all others it stays open, and a warning says so.

    Args:
        cluster: the cluster of TF_CONFIG.

    Raises:
        ClusterConfigError: the file of the secret, or a certificate, cannot be used.
        BootstrapError: the gateway cannot be started.
    """

    def __init__(self, cluster: Cluster) -> None:
        addresses = [each for listed in cluster.addresses.values() for each in listed]
        self._address = cluster.address_of(cluster.task)
        self._is_local = all(is_loopback(each) for each in addresses)
        self._security = Security(read_secret(), read_tls())
        self._gateway: Optional[Gateway] = None
        self._confines = False
        self._confinement: Optional[Confinement] = None
        if not self._is_local and not self._security.kinds:
            warn_of_servers(addresses)
            return
        if not self._is_local:
            takes = channel.offer_data_connection if cluster.task.role == "ps" else None
            self._gateway = Gateway(cluster.name_of(cluster.task), addresses, takes)
        self._confines = True

    @property
    def has_gateway(self) -> bool:
        """Whether connections to other tasks go through a gateway."""
        return self._gateway is not None

    @property
    def tls_folder(self) -> str:
        """The folder with the certificate of this task for data connections; "" for no TLS."""
        tls = self._security.tls
        return "" if self._gateway is None or tls is None else tls.folder

    def begin(self) -> None:
        """Prepares for the server, which starts after this."""
        if self._confines:
            self._confinement = Confinement(split_address(self._address)[1])

    def cover(self) -> None:
        """Lets others reach the server, which listens now, at the address of this task.

        Raises:
            BootstrapError: the address cannot be used.
        """
        reason = "" if self._confinement is None else self._confinement.finish()
        if reason:
            logging.warning(
                "TensorFlow's server cannot be confined to this host (%s): let only hosts of this job through the firewall "
                "to %s (docs/security.md)",
                reason,
                self._address,
            )
        if self._gateway is not None:
            self._gateway.accept_at(self._address)

    def accept_channels(self) -> None:
        """Lets workers open channels to this process, which is a server."""
        channel.prepare(split_address(self._address)[0], self.tls_folder)

    def data_connection(self, name: str, peer: str, address: str) -> Optional[DataConnection]:
        """Returns a connection for a channel to a server; None if UCX makes it.

        Args:
            name: this task, for messages.
            peer: the server, for messages.
            address: "host:port" of the server.

        Raises:
            BootstrapError: the server does not answer, or did not prove itself.
        """
        if self._gateway is None:
            return None
        try:
            opened, token = open_data_connection(address, self._security)
        except (OSError, ValueError) as error:
            raise BootstrapError(f"{name} cannot open a data connection to {peer}: {error}") from error
        return DataConnection(opened, token, self.tls_folder)

    def reason_of_refusal(self, address: str) -> str:
        """Returns why the task at an address and this one cannot talk; "" if nothing is known against it.

        Args:
            address: "host:port".
        """
        if self._is_local:
            return ""
        try:
            return reason_of_refusal(address, self._security)
        except OSError:  # it is not there yet
            return ""

    def close(self) -> None:
        """Ends what was begun, because the server could not be started."""
        if self._confinement is not None:
            self._confinement.cancel()
        if self._gateway is not None:
            self._gateway.close()
