"""Decides how a dataset is split between workers: by file, by data, or not at all.

The policies are tf.data's, `dataset.options().experimental_distribute.auto_shard_policy`, and its rewrite
applies them. AUTO is decided here, equally on all workers and before anything runs. tf.data would choose FILE
for any number of files, and fail on the first worker without a file. Here AUTO chooses FILE if the files can
be split evenly enough, otherwise DATA.

"Evenly enough" means: let X be the largest share of a worker divided by the mean share. With FILE, an epoch
takes X times the steps of equal shares. In the last steps, workers without data contribute no rows, so a
fraction 1 − 1/X of the group's work is lost. With DATA no worker runs out, but each worker reads everything,
P times as much. This costs nothing as long as reading P batches takes no longer than training on one batch.
The limit is X = 5/4: one fifth of the group idle. With at least four files of one size for each worker, X =
ceil(F/P)·P/F stays below 5/4, and FILE is always chosen.
"""

from __future__ import annotations

import json
from typing import List, NamedTuple, Optional

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.collective.exchange.agreement import exchange_texts, require_equal_texts
from tf_strategies.collective.input.file_agreement import ListFacts, facts_of, require_same_files
from tf_strategies.collective.input.file_sources import ENDLESS, find_files
from tf_strategies.collective.worker_group import WorkerGroup

__all__ = ["MOST_UNEVEN", "Sharding", "agree_on_sharding", "choose_sharding", "with_policy"]

# AUTO chooses FILE up to this ratio of the largest share to the mean share; derived above.
MOST_UNEVEN = 1.25

AutoShardPolicy = tf.data.experimental.AutoShardPolicy

_HOW_TO_CHANGE = (
    "To choose another: options = tf.data.Options(); options.experimental_distribute.auto_shard_policy = "
    "tf.data.experimental.AutoShardPolicy.{other}; dataset = dataset.with_options(options)."
)
_MEANINGS = {
    AutoShardPolicy.FILE: "each worker reads its own files and takes its share of every batch from them",
    AutoShardPolicy.DATA: "every worker reads the whole dataset and keeps its share of every batch",
    AutoShardPolicy.OFF: "every worker must have its own data; rows that several workers have count several times",
    AutoShardPolicy.HINT: "each worker reads its part by shard(tf.data.experimental.SHARD_HINT, ...)",
}
_OTHERS = {AutoShardPolicy.FILE: "DATA", AutoShardPolicy.OFF: "AUTO"}


class Sharding(NamedTuple):
    """Describes the decision for a dataset.

    Attributes:
        policy: FILE, DATA, OFF or HINT.
        reason: why, as part of a sentence.
        needs_attention: whether the user should see it, because rows may be used differently than the dataset
            alone suggests.
    """

    policy: AutoShardPolicy
    reason: str
    needs_attention: bool

    def __str__(self) -> str:
        name = "not sharded" if self.policy == AutoShardPolicy.OFF else f"sharded by {self.policy.name}"
        change = _HOW_TO_CHANGE.format(other=_OTHERS.get(self.policy, "OFF"))
        return f"The dataset is {name} ({self.reason}): {_MEANINGS[self.policy]}. {change}"


def agree_on_sharding(group: WorkerGroup, dataset: tf.data.Dataset, *, is_elastic: bool = False) -> Sharding:
    """Decides how the workers of a group split a dataset. A collective, which runs eagerly.

    Args:
        group: the workers.
        dataset: the dataset to split.
        is_elastic: whether fewer workers may go on with the dataset, from a position in it. This position is the same rows for
            any number of workers with DATA alone.

    Raises:
        ValueError: raised on all workers if they cannot split it: FILE without enough files, different
            policies, different files or orders of files, different lengths or seeds, a shuffle without a
            seed.
    """
    policy = AutoShardPolicy(dataset.options().experimental_distribute.auto_shard_policy)
    asks_for_files = policy in (AutoShardPolicy.AUTO, AutoShardPolicy.FILE)
    lists = find_files(dataset, group.size) if asks_for_files else None
    facts = _exchange_facts(group, policy, [facts_of(each, group.size) for each in lists or ()])
    count = min((each.length for each in facts[0]), default=None)
    longest = max((each.longest for each in facts[0]), default=1.0)
    sharding = choose_sharding(policy, count, group.size, longest)
    if is_elastic and sharding.policy == AutoShardPolicy.FILE:
        sharding = _for_elastic(sharding, policy)
    by_file = sharding.policy == AutoShardPolicy.FILE
    require_same_files(group, lists or [], facts, by_file=by_file, change=_HOW_TO_CHANGE.format(other="OFF"))
    if sharding.policy == AutoShardPolicy.OFF:
        return sharding
    seeds = compat.shuffle_seeds(dataset) if sharding.policy == AutoShardPolicy.DATA else []
    _require_one_dataset(group, int(dataset.cardinality()), seeds)
    return sharding


def _exchange_facts(
    group: WorkerGroup, policy: AutoShardPolicy, own: List[ListFacts]
) -> List[List[ListFacts]]:
    """Exchanges the facts of all workers' lists of files.

    Raises on all workers if the policies or the numbers of lists differ.
    """
    given = f"AutoShardPolicy.{policy.name}"
    texts = exchange_texts(
        group, json.dumps([given, own]), name="policy and files of the dataset to distribute"
    )
    parts = [json.loads(text) for text in texts]
    facts = [[ListFacts(*each) for each in listed] for _, listed in parts]
    if len({len(listed) for listed in facts}) > 1:
        said = [f"{name} and {_lists(listed)}" for (name, _), listed in zip(parts, facts)]
    else:
        said = [name for name, _ in parts]
    require_equal_texts(group, "the dataset to distribute", said)
    return facts


def choose_sharding(
    policy: AutoShardPolicy, files: Optional[int], workers: int, longest: float = 1.0
) -> Sharding:
    """Decides how a dataset is split.

    Args:
        policy: the policy of the dataset's options.
        files: the number of files, or ENDLESS; None if tf.data finds no files to split. Needed for AUTO and
            FILE.
        workers: the number of workers.
        longest: the largest share of files of a worker divided by the mean share.

    Raises:
        ValueError: the policy is FILE, and a worker would have no file.
    """
    if policy == AutoShardPolicy.AUTO:
        if files is None:
            return Sharding(AutoShardPolicy.DATA, "AUTO found no files to split", needs_attention=False)
        if files < workers:
            reason = f"AUTO found {_files(files)}, fewer than the {workers} workers"
            return Sharding(AutoShardPolicy.DATA, reason, needs_attention=False)
        reason = f"AUTO found {_files(files)} for {workers} workers"
        if longest > MOST_UNEVEN:
            reason = f"{reason}; split by file, {_idle(longest)}"
            return Sharding(AutoShardPolicy.DATA, reason, needs_attention=True)
        return Sharding(AutoShardPolicy.FILE, reason, needs_attention=True)
    if policy == AutoShardPolicy.FILE and (files is None or files < workers):
        found = "tf.data finds no files to split in it" if files is None else f"it has {_files(files)}"
        raise ValueError(
            f"the dataset asks for AutoShardPolicy.FILE, which needs a file for each of the {workers} workers, but {found}; give "
            f"it more files or another policy. {_HOW_TO_CHANGE.format(other='DATA')}"
        )
    given = f"as AutoShardPolicy.{policy.name} asks"
    if policy == AutoShardPolicy.FILE and longest > MOST_UNEVEN:
        given = f"{given}; {_files(files or 0)} for {workers} workers: {_idle(longest)}"
        return Sharding(policy, given, needs_attention=True)
    return Sharding(policy, given, needs_attention=policy == AutoShardPolicy.OFF)


def _for_elastic(sharding: Sharding, asked: AutoShardPolicy) -> Sharding:
    """Returns DATA in place of FILE, unless the dataset asks for FILE."""
    if asked == AutoShardPolicy.AUTO:
        reason = "with elastic= each row counts once in this way, also when workers are lost"
        return Sharding(AutoShardPolicy.DATA, reason, needs_attention=False)
    reason = f"{sharding.reason}; when workers are lost, some rows of that epoch count twice or not at all"
    return Sharding(sharding.policy, reason, needs_attention=True)


def with_policy(dataset: tf.data.Dataset, policy: AutoShardPolicy) -> tf.data.Dataset:
    """Returns the dataset with this AutoShardPolicy."""
    if AutoShardPolicy(dataset.options().experimental_distribute.auto_shard_policy) == policy:
        return dataset
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def _require_one_dataset(group: WorkerGroup, length: int, seeds: list) -> None:
    """Raises if the workers' datasets differ. An unknown length is not a difference."""
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
                f"{group.name_of(rank)}; each worker keeps its share of every batch, so all workers must "
                f"have the same dataset. If each worker has its own data, choose the policy OFF. "
                f"{_HOW_TO_CHANGE.format(other='OFF')}"
            )
    for rank, (_, _, order) in enumerate(others):
        if order != others[0][2]:
            raise ValueError(
                f"the dataset to distribute shuffles with the seeds {others[0][2]} on {group.name_of(0)} but {order} on "
                f"{group.name_of(rank)} (None: without a seed); each worker keeps its share of every batch, so all workers "
                "must have the same order: give `shuffle`, or the function that makes the dataset "
                "(image_dataset_from_directory), the same `seed=` on all workers, or call "
                "keras.utils.set_random_seed before the dataset is made"
            )
    if None in seeds:
        raise ValueError(
            "the dataset to distribute shuffles without a seed, so every worker has an order of its own. Each worker keeps its "
            "share of every batch, so some rows would be read twice and others never. Give `shuffle` a seed, the same on all "
            "workers, or call tf.random.set_seed or keras.utils.set_random_seed before the dataset is made. If each worker "
            f"has its own data, choose the policy OFF. {_HOW_TO_CHANGE.format(other='OFF')}"
        )


def _idle(longest: float) -> str:
    return (
        f"the largest share would be {longest:.2f} times the mean, and the workers would be without data for "
        f"{1 - 1 / longest:.0%} of an epoch on average"
    )


def _lists(lists: List[ListFacts]) -> str:
    return " and ".join(_files(each.length) for each in lists) or "no files to split"


def _files(count: int) -> str:
    if count == ENDLESS:
        return "an endless list of files"
    return "1 file" if count == 1 else f"{count} files"
