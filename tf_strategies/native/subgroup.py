"""Some workers of a group, with connections and collectives of their own."""

from __future__ import annotations

import dataclasses
import os
from typing import Sequence

from tf_strategies.errors import BootstrapError
from tf_strategies.native import core, host
from tf_strategies.native.communicator import Communicator
from tf_strategies.native.data_plane import fitting, open_data_plane
from tf_strategies.native.endpoints import open_endpoint
from tf_strategies.native.instances import InstanceNumbers
from tf_strategies.native.watch import Watch
from tf_strategies.types import JsonObject

__all__ = ["Subcommunicator", "open_subgroup"]


class Subcommunicator:
    """Holds the data plane of some workers of a group. Failures are those of the whole group.

    Args:
        whole: the communicator of the group.
        ranks: the ranks of the workers in the group.
        number: of the subgroup in its group.
        communicator: the id of the communicator in the core.

    Attributes:
        id: the number that identifies the communicator in operations.
        ranks: the ranks of the workers in the group.
        number: of the subgroup in its group.
        rank: this worker's position among the ranks.
        size: the number of ranks.
    """

    def __init__(self, whole: Communicator, ranks: Sequence[int], number: int, communicator: int) -> None:
        self.id = communicator
        self.ranks = tuple(ranks)
        self.number = number
        self.rank = self.ranks.index(whole.rank)
        self.size = len(self.ranks)
        self._whole = whole
        self._process = os.getpid()
        self._instances = InstanceNumbers()
        self._closed = False
        whole.adopt(self)
        Watch(self.id, self._on_failure, whole.write_records).start()

    @property
    def usable(self) -> bool:
        """True if it is open and this worker knows of no failure of the group."""
        return not self._closed and self._whole.usable

    def next_instance(self, name: str, *, count: int = 1) -> int:
        """Does the same as `Communicator.next_instance`."""
        return self._instances.next(name, count)

    def records(self) -> JsonObject:
        """Returns the last collectives of this worker in the subgroup, as an entry of "subgroups" in a record."""
        collectives = core.records(self.id).get("collectives", ())
        return {"number": self.number, "ranks": self.ranks, "collectives": collectives}

    def end_failures(self) -> None:
        """Reports no failures from now on, as before the workers close their connections."""
        core.end_failures(self.id)

    def close(self) -> None:
        """Closes the connections. May be called again. In a forked child of the worker's process it does nothing."""
        if os.getpid() == self._process and not self._closed:
            self._closed = True
            self._whole.release(self)
            core.close(self.id)

    def _on_failure(self, failure: core.Failure) -> None:
        peer = self.ranks[failure.peer] if 0 <= failure.peer < self.size else -1
        self._whole.report_failure(failure.code, failure.message, peer)


def open_subgroup(whole: Communicator, ranks: Sequence[int], number: int) -> Subcommunicator | None:
    """Connects some workers of a group. All workers of the group must call it. Returns None on the others.

    Args:
        whole: the communicator of the group.
        ranks: the ranks of at least two workers, equal on all workers.
        number: of the subgroup in its group, from 0; equal on all workers.

    Raises:
        BootstrapError: the workers could not connect.
    """
    what = f"addresses of the subgroup {list(ranks)}"
    if whole.rank not in ranks:
        whole.exchange({}, what=what)
        _require_no_errors(whole.exchange({"error": ""}, what=f"{what} are connected"))
        return None
    options = fitting(whole.options, [whole.hosts[rank] for rank in ranks])
    settings = dataclasses.replace(
        whole.settings,
        names=[whole.settings.names[rank] for rank in ranks],
        hosts=[whole.settings.hosts[rank] for rank in ranks],
        rank=list(ranks).index(whole.rank),
    )
    error, communicator, mine, endpoint = "", -1, {}, None
    try:
        endpoint = open_endpoint(options.transport, settings)
        mine = {**endpoint.address(), "host": host.identity()}
    except BootstrapError as failure:
        error = str(failure)
    theirs: list[JsonObject] = whole.exchange({**mine, "error": error}, what=what)
    try:
        _require_no_errors([theirs[rank] for rank in ranks])
        if endpoint is not None:
            # The number makes the key of the connections another one than that of the group and of other subgroups.
            epoch = (whole.epoch << 32) + 1 + number
            communicator = open_data_plane(
                endpoint, [theirs[rank] for rank in ranks], settings, options, epoch, whole.verdict_timeout
            )
    except BootstrapError as failure:
        error = error or str(failure)
        if endpoint is not None:
            endpoint.close()
    try:
        _require_no_errors(whole.exchange({"error": error}, what=f"{what} are connected"))
    except BootstrapError:
        if communicator >= 0:
            core.close(communicator)
        raise
    return Subcommunicator(whole, ranks, number, communicator)


def _require_no_errors(answers: Sequence[JsonObject]) -> None:
    for answer in answers:
        if answer.get("error"):
            raise BootstrapError(str(answer["error"]))
