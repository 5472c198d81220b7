"""Opens the communicator of the core for a set of workers that know one another's addresses."""

from __future__ import annotations

import dataclasses
from typing import Sequence

from tf_strategies.errors import BootstrapError
from tf_strategies.native import core, host
from tf_strategies.native.endpoints import Endpoint, Settings
from tf_strategies.options import CommunicationOptions
from tf_strategies.types import JsonObject

__all__ = ["fitting", "open_data_plane"]


def open_data_plane(
    endpoint: Endpoint,
    addresses: Sequence[JsonObject],
    settings: Settings,
    options: CommunicationOptions,
    epoch: int,
    verdict_timeout: float,
) -> int:
    """Connects this worker to the others. Returns the id of its communicator in the core.

    Args:
        endpoint: of this worker. It cannot be used again.
        addresses: of all workers, each with its "host".
        settings: what this worker knows.
        options: of communication.
        epoch: the number of the group.
        verdict_timeout: the number of seconds that a failure waits for the decision of the control plane.

    Raises:
        BootstrapError: a worker cannot be reached, or the algorithm does not fit the hosts.
    """
    hosts = [each["host"] for each in addresses]
    ranks_per_host = host.ranks_per_host(hosts)
    if options.algorithm == "hierarchical" and ranks_per_host == 1 and len(hosts) > 1:
        raise BootstrapError(_not_hierarchical(hosts))
    same_host = [each == hosts[settings.rank] for each in hosts]
    transport = endpoint.connect(addresses, same_host, epoch)
    return core.open_communicator(
        transport,
        ranks_per_host=ranks_per_host,
        ranks_here=sum(same_host),
        by_network=not endpoint.memory or len({(each["host"], each["memory"]) for each in addresses}) > 1,
        peer_names=list(settings.names),
        algorithm=options.algorithm,
        chunk_bytes=options.chunk_bytes,
        timeout=options.timeout,
        verdict_timeout=verdict_timeout,
    )


def fitting(options: CommunicationOptions, hosts: Sequence[str]) -> CommunicationOptions:
    """Returns the options with an algorithm that these hosts of some workers allow."""
    if options.algorithm == "hierarchical" and host.ranks_per_host(list(hosts)) == 1:
        return dataclasses.replace(options, algorithm="auto")
    return options


def _not_hierarchical(hosts: list[str]) -> str:
    numbers = {name: number for number, name in enumerate(dict.fromkeys(hosts))}
    return (
        "algorithm='hierarchical' needs the same number of workers, at least two, on each host, listed host by host in "
        f"TF_CONFIG; the workers are on hosts {', '.join(str(numbers[name]) for name in hosts)}; use algorithm='auto'"
    )
