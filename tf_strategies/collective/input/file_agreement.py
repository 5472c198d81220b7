"""Checks that all workers have the same list of files, in the same order, before they split it.

With AutoShardPolicy.FILE, worker r of P reads the files r, r + P, r + 2P, … of its own list. A list in another order, such as
`glob.glob` may give on another host, therefore means that some files are read twice and others never.

Hosts may mount the same data at different paths. If the base names in a list are unique, files are compared
by base name; otherwise by their paths below the common folder of the list. Local files are also compared by
size.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple

from tf_strategies.collective.exchange.agreement import exchange_texts, require_equal_texts
from tf_strategies.collective.input.file_sources import ENDLESS, FileList
from tf_strategies.collective.worker_group import WorkerGroup

__all__ = ["ListFacts", "comparable_names", "facts_of", "longest_share", "require_same_files"]

# A stat call on a network file system takes about a millisecond. Longer lists are compared by name only.
_MOST_SIZED = 1000
# Longer lists are not sent to find out which names differ: these have some 10 MB.
_MOST_SENT = 100_000
_SHOWN = 3

_Listed = Tuple[List[str], List[Optional[int]]]  # the names and the sizes of a list


class ListFacts(NamedTuple):
    """The facts of one list that workers compare.

    Attributes:
        length: the number of files, or ENDLESS.
        order: a digest of the names in order; "" if the names are unknown.
        files: a digest of the sorted names.
        sizes: a digest of the sizes, in the order of the sorted names; "" if the sizes are unknown.
        longest: the largest share of a worker over the mean share, as `longest_share` returns it.
    """

    length: int
    order: str
    files: str
    sizes: str
    longest: float


def facts_of(files: FileList, workers: int) -> ListFacts:
    """Returns the facts of a list that `workers` workers are about to split."""
    sizes = _sizes(files)
    longest = longest_share(files.count, workers, sizes)
    if files.names is None:
        return ListFacts(files.count, "", "", "", longest)
    names = comparable_names(files.names)
    by_name = [] if sizes is None else [size for _, size in sorted(zip(names, sizes))]
    return ListFacts(
        files.count,
        _digest(names),
        _digest(sorted(names)),
        _digest(map(str, by_name)) if by_name else "",
        longest,
    )


def longest_share(count: int, workers: int, sizes: Optional[Sequence[int]] = None) -> float:
    """Returns the largest share of a worker over the mean share, 1 or more.

    Args:
        count: the number of files, or ENDLESS.
        workers: the number of workers, which take files in turn.
        sizes: [count], in bytes. Without sizes, all files count the same.

    Example:
        >>> longest_share(9, 8)
        1.7777777777777777
        >>> longest_share(4, 2, sizes=[30, 10, 30, 10])
        1.5
    """
    if count == ENDLESS:
        return 1.0
    if sizes and sum(sizes):
        shares = [sum(sizes[rank::workers]) for rank in range(workers)]
        return max(shares) * workers / sum(sizes)
    return -(-count // workers) * workers / max(count, 1)


def comparable_names(names: Sequence[str]) -> Tuple[str, ...]:
    """Returns the names by which files are compared between hosts; see the docstring of this module."""
    distinct = set(names)
    short = {name: name.rstrip("/").rpartition("/")[2] for name in distinct}
    if len(set(short.values())) < len(distinct):
        parts = {name: name.split("/") for name in distinct}
        columns = zip(*(folders[:-1] for folders in parts.values()))
        common = next((i for i, column in enumerate(columns) if len(set(column)) > 1), None)
        common = min(map(len, parts.values())) - 1 if common is None else common
        short = {name: "/".join(folders[common:]) for name, folders in parts.items()}
    return tuple(short[name] for name in names)


def require_same_files(
    group: WorkerGroup, mine: List[FileList], facts: List[List[ListFacts]], *, by_file: bool, change: str
) -> None:
    """Raises on all workers if their lists of files do not match.

    Args:
        group: the workers.
        mine: the lists of this worker.
        facts: the facts of the lists of all workers, by rank, as many on each.
        by_file: whether the files will be split. Otherwise every worker reads all files, and files with other
            names may have the same rows.
        change: a sentence on how to choose another policy.

    Raises:
        ValueError: the workers have the same files in different orders or, if files will be split, different
            files.
    """
    for position, own in enumerate(mine):
        lists = [each[position] for each in facts]
        first = lists[0]
        if not all(each.order for each in lists):
            if by_file:
                counts = [f"{each.length} files in a list" for each in lists]
                require_equal_texts(group, "the dataset to distribute", counts)
            continue
        others = [rank for rank, each in enumerate(lists) if each.files != first.files]
        if others and by_file:
            parts = _gathered(group, own)
            raise ValueError(
                f"the dataset to distribute would be split by its files, but the workers have different files: "
                f"{'; '.join(_difference(group, parts, rank) for rank in others[:_SHOWN])}. Each worker "
                f"takes its files by their positions in the list, so some would be read twice and others "
                f"never. Give every worker the whole list. If each worker has files that no other worker "
                f"reads, choose the policy OFF. {change}"
            )
        moved = [rank for rank, each in enumerate(lists) if each.order != first.order]
        if moved and not others:
            parts = _gathered(group, own)
            raise ValueError(
                f"the dataset to distribute has the same files on all workers, but in another order: "
                f"{_first_moved(group, parts, moved[0])}. Each worker takes its part by positions in this "
                f"order, so some rows would be read twice and others never. Sort the names before the "
                f"dataset is made, as in "
                "`sorted(glob.glob(...))`; to shuffle files, use `shuffle` of the dataset with a seed"
            )
        sized = [rank for rank, each in enumerate(lists) if each.sizes]
        unequal = [rank for rank in sized if lists[rank].sizes != lists[sized[0]].sizes]
        if unequal and by_file and not others:
            parts = _gathered(group, own)
            raise ValueError(
                f"the dataset to distribute has files of the same names on all workers, but of other sizes: "
                f"{_first_resized(group, parts, sized[0], unequal[0])}. They cannot be split as if they "
                f"were the same files. Copy the same files to every host. If each worker has its own rows "
                f"in them, choose the policy OFF. {change}"
            )


def _digest(parts: Iterable[str]) -> str:
    text = "\n".join(parts).encode("utf-8", "surrogateescape")
    return hashlib.blake2b(text, digest_size=12).hexdigest()


def _sizes(files: FileList) -> Optional[List[int]]:
    """Returns the size of each file in bytes.

    Returns None if the list is too long or endless, or the files are not on a mounted disk.
    """
    names = files.names
    if names is None or len(names) != files.count or len(names) > _MOST_SIZED:
        return None
    try:
        return [Path(name).stat().st_size for name in names]
    except (OSError, ValueError):
        return None


def _gathered(group: WorkerGroup, files: FileList) -> List[_Listed]:
    """Returns the comparable names and the sizes of the list on every worker, by rank."""
    names = comparable_names(files.names or ())[:_MOST_SENT]
    sizes: Sequence[Optional[int]] = _sizes(files) or [None] * len(names)
    texts = exchange_texts(group, json.dumps([names, sizes]), name="files of the dataset to distribute")
    return [tuple(json.loads(text)) for text in texts]


def _difference(group: WorkerGroup, parts: Sequence[_Listed], rank: int) -> str:
    """Returns a sentence that names the files that only one of a worker and worker 0 has."""
    first, other = parts[0][0], parts[rank][0]
    own, missing = sorted(set(other) - set(first)), sorted(set(first) - set(other))
    said = []
    if missing:
        said.append(f"{group.name_of(0)} has {_some(missing)} and {group.name_of(rank)} does not")
    if own:
        said.append(f"{group.name_of(rank)} has {_some(own)} and {group.name_of(0)} does not")
    if not said:
        said.append(f"{group.name_of(0)} lists {len(first)} names and {group.name_of(rank)} {len(other)}")
    return ", ".join(said)


def _first_moved(group: WorkerGroup, parts: Sequence[_Listed], rank: int) -> str:
    pairs = enumerate(zip(parts[0][0], parts[rank][0]))
    at, first, other = next(((i, a, b) for i, (a, b) in pairs if a != b), (_MOST_SENT, "…", "…"))
    return f"file {at} is {first!r} on {group.name_of(0)} but {other!r} on {group.name_of(rank)}"


def _first_resized(group: WorkerGroup, parts: Sequence[_Listed], first: int, rank: int) -> str:
    sizes = dict(zip(parts[first][0], parts[first][1]))
    for name, size in zip(*parts[rank]):
        if sizes.get(name) != size:
            return f"{name!r} has {sizes.get(name)} bytes on {group.name_of(first)} but {size} on {group.name_of(rank)}"
    return f"{group.name_of(first)} and {group.name_of(rank)} list names more than once"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN]))
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
