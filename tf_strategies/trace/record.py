"""Reads the files in which workers have recorded their last collectives."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Iterator, Optional

from tf_strategies.native.record_file import FORMAT
from tf_strategies.slow_wire import Sent, sent_over
from tf_strategies.types import JsonObject

__all__ = ["Collective", "Record", "RecordError", "collective_of", "read_folder"]

_MOST_BYTES = 16 << 20  # of a file


class RecordError(ValueError):
    """A file is not a record, or files do not belong together."""


@dataclasses.dataclass(frozen=True)
class Collective:
    """Describes a collective of one rank. Times are in nanoseconds on the rank's clock, 0 for what has not happened.

    Attributes:
        kind: "all_reduce", "broadcast", "all_gather", "all_to_all" or "barrier".
        name: its name in messages.
        instance: its number in the graph, equal on all ranks.
        use: how often the instance was used before, equal on all ranks; −1 if the collective has not started.
        algorithm: the name of its algorithm.
        dtype: the name of the type of its elements.
        bytes: the bytes of its elements.
        submitted_ns: when TensorFlow had computed its input.
        started_ns: when its first messages were posted.
        ended_ns: when it ended or failed.
        last_peer: the rank whose data arrived last, or −1.
        code: how it ended; 0 is OK.
        subgroup: the number of its subgroup; −1 if it is one of all workers.
        ranks: the ranks of the subgroup; empty if it is one of all workers.
    """

    kind: str
    name: str
    instance: int
    use: int
    algorithm: str
    dtype: str
    bytes: int
    submitted_ns: int
    started_ns: int
    ended_ns: int
    last_peer: int
    code: int
    subgroup: int = -1
    ranks: tuple[int, ...] = ()

    @property
    def key(self) -> tuple[int, int, int]:
        """Identifies the collective on all of its ranks, once it has started."""
        return self.subgroup, self.instance, self.use

    def is_of(self, rank: int) -> bool:
        """Returns whether a rank takes part in it."""
        return self.subgroup < 0 or rank in self.ranks


_TEXTS = ("kind", "name", "algorithm", "dtype")
_OF_SUBGROUP = ("subgroup", "ranks")
_NUMBERS = tuple(
    field.name for field in dataclasses.fields(Collective) if field.name not in (*_TEXTS, *_OF_SUBGROUP)
)


@dataclasses.dataclass(frozen=True)
class Record:
    """Holds the last collectives of one rank.

    Attributes:
        rank: the rank.
        epoch: the number of its group.
        names: the names of all ranks.
        hosts: the identity of each rank's host.
        failure: the reason why the group failed, or "".
        monotonic_ns: when the record was written, on the rank's clock.
        offset: how far the clock of rank 0 is ahead, and the largest error, in nanoseconds; None if unknown.
        collectives: the collectives of all workers, and then those of each open subgroup; the oldest first.
        wires: what the rank has sent to others, if the system counts it.
    """

    rank: int
    epoch: int
    names: tuple[str, ...]
    hosts: tuple[str, ...]
    failure: str
    monotonic_ns: int
    offset: Optional[tuple[int, int]]
    collectives: tuple[Collective, ...]
    wires: tuple[Sent, ...] = ()


def read_folder(folder: Path) -> list[Record]:
    """Returns the records in a folder, by rank.

    Args:
        folder: a folder with the files of one group, or with such folders; then the latest of them is read.

    Raises:
        RecordError: there is no record, a file is not a record, or files belong to several groups.
    """
    paths = _files(folder)
    if not paths:
        groups = (
            [each for each in folder.iterdir() if each.is_dir() and _files(each)] if folder.is_dir() else []
        )
        if not groups:
            raise RecordError(
                f"{folder} has no records; set TF_STRATEGIES_RECORDS to a folder on all workers, or name the folder of "
                "the error message"
            )
        paths = _files(max(groups, key=lambda each: each.stat().st_mtime))
    found = sorted(((_read(path), path) for path in paths), key=lambda pair: pair[0].rank)
    records = [record for record, _ in found]
    first = records[0]
    for record, path in found:
        if (record.epoch, record.names) != (first.epoch, first.names):
            raise RecordError(f"{path} is of another group than the other files; give each group a folder")
    if len({record.rank for record in records}) < len(records):
        raise RecordError(f"{paths[0].parent} has two files of the same rank; remove one of them")
    return records


def collective_of(fields: JsonObject) -> Collective:
    """Returns one collective of a record.

    Args:
        fields: an entry of "collectives"; see `tfs_communicator_records` in ops/communicator/c_api.h.
    """
    typed = {name: str(fields[name]) for name in _TEXTS}
    return Collective(**typed, **{name: int(fields[name]) for name in _NUMBERS})  # type: ignore[arg-type]


def _of_subgroup(fields: JsonObject, size: int) -> Iterator[Collective]:
    number, ranks = int(fields["number"]), tuple(map(int, fields["ranks"]))
    if number < 0 or not all(0 <= rank < size for rank in ranks):
        raise ValueError(f"its subgroup {number} has the ranks {ranks}, its group has {size}")
    for each in map(collective_of, fields["collectives"]):
        peer = ranks[each.last_peer] if 0 <= each.last_peer < len(ranks) else -1
        yield dataclasses.replace(each, last_peer=peer, subgroup=number, ranks=ranks)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.json") if path.name != "trace.json")


def _read(path: Path) -> Record:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES} bytes")
        content = json.loads(path.read_text(errors="replace"))
        return _record(content)
    except (OSError, ValueError, LookupError, ArithmeticError, TypeError, RecursionError) as error:
        raise RecordError(f"{path} is not a record of collectives: {error!r}") from None


def _record(content: JsonObject) -> Record:
    if content["format"] != FORMAT:
        raise ValueError(f"its format is {content['format']!r}; this version of tf_strategies reads {FORMAT}")
    names, rank = tuple(map(str, content["names"])), int(content["rank"])
    hosts = tuple(map(str, content["hosts"]))
    if not 0 <= rank < len(names) or len(hosts) != len(names):
        raise ValueError(f"its rank is {rank}, its group has {len(names)} names and {len(hosts)} hosts")
    offset = content["clock_offset_ns"]
    return Record(
        rank=rank,
        epoch=int(content["epoch"]),
        names=names,
        hosts=hosts,
        failure=str(content["failure"]),
        monotonic_ns=int(content["monotonic_ns"]),
        offset=None if offset is None else (int(offset[0]), int(offset[1])),
        collectives=(
            *map(collective_of, content["collectives"]),
            *itertools.chain.from_iterable(_of_subgroup(each, len(names)) for each in content["subgroups"]),
        ),
        wires=tuple(
            each for each in sent_over(content["connections"], rank) if 0 <= each.receiver < len(names)
        ),
    )
