"""How the elements of a dataset are split between workers: by file, by data, or not at all.

The policies are tf.data's, `dataset.options().experimental_distribute.auto_shard_policy`, and its own rewrite carries them
out. What differs: AUTO is decided here, on all workers alike and before anything runs. It takes FILE where each worker gets
a file, else DATA; tf.data takes FILE for any number of files and fails on the first worker that gets none.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.collective.agreement import exchange_texts, require_agreement
from tf_strategies.collective.file_sources import ENDLESS, count_files

__all__ = ["Sharding", "agree_on_sharding", "choose_sharding", "with_policy"]

AutoShardPolicy = tf.data.experimental.AutoShardPolicy

_HOW_TO_CHANGE = (
    "To choose another: options = tf.data.Options(); options.experimental_distribute.auto_shard_policy = "
    "tf.data.experimental.AutoShardPolicy.{other}; dataset = dataset.with_options(options)."
)
_MEANINGS = {
    AutoShardPolicy.FILE: "each worker reads files of its own and takes its share of every batch from them",
    AutoShardPolicy.DATA: "every worker reads the whole dataset and keeps its share of every batch",
    AutoShardPolicy.OFF: "every worker must bring data of its own; rows that several of them have count several times",
    AutoShardPolicy.HINT: "each worker reads what shard(tf.data.experimental.SHARD_HINT, ...) leaves it",
}
_OTHERS = {AutoShardPolicy.FILE: "DATA", AutoShardPolicy.OFF: "AUTO"}
_UNSEEDED = (
    " It shuffles without a seed, so the workers keep parts of different orders, and some rows come twice and others never: "
    "give `shuffle` the same seed on all workers."
)


class Sharding(NamedTuple):
    """What was decided for a dataset.

    Attributes:
        policy: FILE, DATA, OFF or HINT.
        reason: why, as part of a sentence.
        needs_attention: whether the user should see it: rows may be used otherwise than the dataset alone says.
        unseeded: whether workers that should keep parts of one order shuffle each in its own.
    """

    policy: AutoShardPolicy
    reason: str
    needs_attention: bool
    unseeded: bool = False

    def __str__(self) -> str:
        name = "not sharded" if self.policy == AutoShardPolicy.OFF else f"sharded by {self.policy.name}"
        change = _HOW_TO_CHANGE.format(other=_OTHERS.get(self.policy, "OFF"))
        unseeded = _UNSEEDED if self.unseeded else ""
        return f"The dataset is {name} ({self.reason}): {_MEANINGS[self.policy]}. {change}{unseeded}"


def agree_on_sharding(group, dataset: tf.data.Dataset) -> Sharding:
    """Decides how the workers of a group split a dataset; a collective, eagerly.

    Raises:
        ValueError: on all workers, when they cannot split it: FILE without enough files, different policies, files, lengths
            or seeds.
    """
    policy = AutoShardPolicy(dataset.options().experimental_distribute.auto_shard_policy)
    asks_for_files = policy in (AutoShardPolicy.AUTO, AutoShardPolicy.FILE)
    files = count_files(dataset, group.size) if asks_for_files else None
    given = f"AutoShardPolicy.{policy.name}"
    require_agreement(
        group, "the dataset to distribute", given if files is None else f"{given} and {_files(files)}"
    )
    sharding = choose_sharding(policy, files, group.size)
    if sharding.policy == AutoShardPolicy.OFF:
        return sharding
    seeds = compat.shuffle_seeds(dataset) if sharding.policy == AutoShardPolicy.DATA else []
    _require_one_dataset(group, int(dataset.cardinality()), seeds)
    if None in seeds:
        return sharding._replace(unseeded=True, needs_attention=True)
    return sharding


def choose_sharding(policy: AutoShardPolicy, files: Optional[int], workers: int) -> Sharding:
    """Decides how a dataset is split.

    Args:
        policy: what the dataset's options say.
        files: what `count_files` says; needed for AUTO and FILE.
        workers: how many share it.

    Raises:
        ValueError: FILE was asked for, and some worker would have no file.
    """
    if policy == AutoShardPolicy.AUTO:
        if files is None:
            return Sharding(AutoShardPolicy.DATA, "AUTO found no files to split", needs_attention=False)
        if files < workers:
            reason = f"AUTO found {_files(files)}, fewer than the {workers} workers"
            return Sharding(AutoShardPolicy.DATA, reason, needs_attention=False)
        reason = f"AUTO found {_files(files)} for {workers} workers"
        return Sharding(AutoShardPolicy.FILE, reason, needs_attention=True)
    if policy == AutoShardPolicy.FILE and (files is None or files < workers):
        found = "tf.data finds no files to split in it" if files is None else f"it has {_files(files)}"
        raise ValueError(
            f"the dataset asks for AutoShardPolicy.FILE, which needs a file for each of the {workers} workers, but {found}; give "
            f"it more files or another policy. {_HOW_TO_CHANGE.format(other='DATA')}"
        )
    given = f"as AutoShardPolicy.{policy.name} asks"
    return Sharding(policy, given, needs_attention=policy == AutoShardPolicy.OFF)


def with_policy(dataset: tf.data.Dataset, policy: AutoShardPolicy) -> tf.data.Dataset:
    """The dataset with this AutoShardPolicy."""
    if AutoShardPolicy(dataset.options().experimental_distribute.auto_shard_policy) == policy:
        return dataset
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def _require_one_dataset(group, length: int, seeds: list) -> None:
    """Raises where workers would keep parts of different datasets; a length that one does not know is no difference."""
    own = f"{length} {seeds}"
    others = [
        text.partition(" ") for text in exchange_texts(group, own, name="length and order of the dataset")
    ]
    known = [(rank, int(text)) for rank, (text, _, _) in enumerate(others) if int(text) >= 0]
    for rank, other in known[1:]:
        first, expected = known[0]
        if other != expected:
            raise ValueError(
                f"the dataset to distribute has {expected} batches on {group.name_of(first)} but {other} on "
                f"{group.name_of(rank)}; each worker keeps its share of every batch, so all must have the same dataset. Where "
                f"each brings data of its own, say so. {_HOW_TO_CHANGE.format(other='OFF')}"
            )
    for rank, (_, _, order) in enumerate(others):
        if order != others[0][2]:
            raise ValueError(
                f"the dataset to distribute shuffles with the seeds {others[0][2]} on {group.name_of(0)} but {order} on "
                f"{group.name_of(rank)} (None: without a seed); each worker keeps its share of every batch, so all must have the "
                "same order: give `shuffle` the same seed on all workers"
            )


def _files(count: int) -> str:
    if count == ENDLESS:
        return "an endless list of files"
    return "1 file" if count == 1 else f"{count} files"
