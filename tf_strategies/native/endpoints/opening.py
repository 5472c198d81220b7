"""Opens the endpoint of a worker for the transport of its options."""

from __future__ import annotations

import os

from tf_strategies.native import host
from tf_strategies.native.endpoints.by_host import ByHostEndpoint
from tf_strategies.native.endpoints.endpoint import Endpoint, Settings
from tf_strategies.native.endpoints.tcp import TcpEndpoint
from tf_strategies.native.endpoints.ucx import UcxEndpoint

__all__ = ["open_endpoint"]


def open_endpoint(transport: str, settings: Settings) -> Endpoint:
    """Returns the endpoint of this worker.

    Args:
        transport: as in CommunicationOptions. "auto" means "ucx" if UCX_TLS is set.
        settings: what the worker knows.

    Raises:
        BootstrapError: the endpoint cannot be opened.
    """
    if transport == "tcp":
        return TcpEndpoint(settings)
    if transport == "auto" and "UCX_TLS" not in os.environ:
        return ByHostEndpoint(settings)
    return UcxEndpoint(settings, transport, host.net_devices(settings.hosts[settings.rank]))
