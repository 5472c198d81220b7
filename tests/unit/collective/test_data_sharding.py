"""What AutoShardPolicy becomes: decided by what tf.data's rewrite finds, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")

from tf_strategies._tf import compat  # noqa: E402
from tf_strategies.collective.input.autoshard import MOST_UNEVEN, choose_sharding, with_policy  # noqa: E402
from tf_strategies.collective.input.file_agreement import comparable_names, longest_share  # noqa: E402
from tf_strategies.collective.input.file_sources import ENDLESS, count_files, find_files  # noqa: E402

Dataset = tf.data.Dataset
Policy = tf.data.experimental.AutoShardPolicy


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for number in range(4):
        with tf.io.TFRecordWriter(str(folder / f"{number}.records")) as writer:
            writer.write(b"row")
        (folder / f"{number}.csv").write_text("a,b\n1,2\n")
    return folder


def names(folder: Path, ending: str = "records") -> list:
    return sorted(str(path) for path in folder.glob(f"*.{ending}"))


def table_of_rows():
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["row"], [7]), -1)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda f: tf.data.TFRecordDataset(names(f)).shuffle(3).batch(2).prefetch(1), 4),
        (lambda f: tf.data.TFRecordDataset(names(f)[:1]).batch(2), 1),
        (lambda f: tf.data.TextLineDataset(names(f, "csv")).skip(1).batch(2), 4),
        (lambda f: Dataset.list_files(f"{f}/*.records").interleave(tf.data.TFRecordDataset).batch(2), 4),
        (lambda f: Dataset.from_tensor_slices(names(f)).repeat().flat_map(tf.data.TFRecordDataset), ENDLESS),
        (
            lambda f: (
                Dataset.from_tensor_slices(names(f))
                .filter(lambda name: tf.strings.regex_full_match(name, r".*[012]\.records"))
                .flat_map(tf.data.TFRecordDataset)
            ),
            3,
        ),
        (
            lambda f: Dataset.zip(
                (tf.data.TFRecordDataset(names(f)), tf.data.TFRecordDataset(names(f)[:2]))
            ).batch(2),
            2,
        ),
        (lambda f: tf.data.TFRecordDataset(names(f)).shard(9, 8).batch(2), 4),
        (lambda f: tf.data.TFRecordDataset(names(f)).map(table_of_rows().lookup).batch(2), 4),
        (
            lambda f: (
                tf.data.TFRecordDataset(names(f)).batch(2).apply(tf.data.experimental.assert_cardinality(2))
            ),
            4,
        ),
        (lambda f: Dataset.range(10).batch(2), None),
        (lambda f: Dataset.zip((tf.data.TFRecordDataset(names(f)), Dataset.range(4))).batch(2), None),
        (lambda f: tf.data.experimental.make_csv_dataset(names(f, "csv"), 2), None),
        (
            lambda f: Dataset.from_generator(
                lambda: iter([1, 2]), output_signature=tf.TensorSpec([], tf.int32)
            ).batch(2),
            None,
        ),
    ],
)
def test_files_are_counted_where_tf_data_would_split_them(folder: Path, make, expected) -> None:
    dataset = make(folder)
    assert count_files(find_files(dataset, workers=3)) == expected


@pytest.mark.parametrize(("files", "policy"), [(3, "FILE"), (2, "DATA"), (None, "DATA"), (ENDLESS, "FILE")])
def test_auto_takes_files_where_every_worker_gets_one(files, policy: str) -> None:
    chosen = choose_sharding(Policy.AUTO, files, workers=3)
    assert chosen.policy.name == policy
    assert chosen.needs_attention == (policy == "FILE"), "batches by DATA are those of one process"
    assert f"sharded by {policy}" in str(chosen) and "with_options" in str(chosen)


def test_the_line_says_what_was_found() -> None:
    assert "AUTO found 2 files, fewer than the 3 workers" in str(choose_sharding(Policy.AUTO, 2, 3))
    assert "AUTO found 1 file, fewer" in str(choose_sharding(Policy.AUTO, 1, 3))
    assert "AUTO found no files" in str(choose_sharding(Policy.AUTO, None, 3))
    assert "AutoShardPolicy.DATA" in str(choose_sharding(Policy.AUTO, 5, 3))
    off = choose_sharding(Policy.OFF, None, 3)
    assert off.needs_attention and "every worker must have its own data" in str(off)


def test_a_policy_that_was_given_stays() -> None:
    for policy in (Policy.DATA, Policy.OFF, Policy.HINT):
        assert choose_sharding(policy, None, 3).policy == policy
    assert choose_sharding(Policy.FILE, 3, 3).policy == Policy.FILE
    assert not choose_sharding(Policy.DATA, None, 3).needs_attention


@pytest.mark.parametrize(("files", "found"), [(2, "it has 2 files"), (None, "finds no files")])
def test_file_without_enough_files_is_refused(files, found: str) -> None:
    with pytest.raises(ValueError, match=f"a file for each of the 3 workers, but .*{found}.*DATA"):
        choose_sharding(Policy.FILE, files, workers=3)


def test_options_change_nothing_but_the_policy() -> None:
    dataset = Dataset.range(4).batch(2)
    assert with_policy(dataset, Policy.AUTO) is dataset
    changed = with_policy(dataset, Policy.DATA)
    assert changed.options().experimental_distribute.auto_shard_policy == Policy.DATA
    assert [list(part) for part in changed.as_numpy_iterator()] == [[0, 1], [2, 3]]


def test_the_seeds_of_shuffles_are_seen_at_any_depth() -> None:
    plain = Dataset.range(4)
    assert compat.shuffle_seeds(plain.batch(2)) == []
    mixed = Dataset.zip((plain.shuffle(4, seed=3).batch(2), plain.shuffle(4).batch(2))).prefetch(1)
    seeded, unseeded = compat.shuffle_seeds(mixed)
    assert seeded[1] == 3 and unseeded is None


@pytest.mark.parametrize(
    ("files", "workers", "policy"),
    [
        (9, 8, "DATA"),
        (16, 8, "FILE"),
        (17, 8, "DATA"),
        (33, 8, "FILE"),
        (5, 4, "DATA"),
        (17, 4, "FILE"),
        (3, 2, "DATA"),
    ],
)
def test_auto_takes_data_where_shares_of_files_would_leave_workers_idle(files, workers, policy) -> None:
    longest = longest_share(files, workers)
    chosen = choose_sharding(Policy.AUTO, files, workers, longest)
    assert chosen.policy.name == policy and chosen.needs_attention
    assert ("without data for" in str(chosen)) == (policy == "DATA")
    asked = choose_sharding(Policy.FILE, files, workers, longest)
    assert asked.policy == Policy.FILE and ("without data for" in str(asked)) == (policy == "DATA")


def test_four_files_for_each_worker_are_always_even_enough() -> None:
    for workers in range(1, 70):
        assert all(longest_share(files, workers) < MOST_UNEVEN for files in range(4 * workers, 9 * workers))


def test_the_largest_share_counts_bytes_where_they_are_known() -> None:
    assert longest_share(9, 8) == pytest.approx(16 / 9)
    assert longest_share(4, 2, [30, 10, 30, 10]) == 1.5
    assert longest_share(4, 2, [0, 0, 0, 0]) == 1.0
    assert longest_share(ENDLESS, 8) == 1.0


def test_files_are_known_by_base_names_or_by_the_path_below_their_common_folder() -> None:
    assert comparable_names(["/a/x/1", "/a/y/2", "/a/x/1"]) == ("1", "2", "1")
    assert comparable_names(["/a/x/1", "/a/xy/1"]) == comparable_names(["/mnt/b/x/1", "/mnt/b/xy/1"])
    assert (
        comparable_names(["x/1", "y/1"]) == comparable_names(["gs://b/x/1", "gs://b/y/1"]) == ("x/1", "y/1")
    )
    assert comparable_names(["x/1", "y/1"]) != comparable_names(["y/1", "x/1"])


def test_names_are_those_before_any_shuffle(folder: Path) -> None:
    ordered = tuple(names(folder))
    for dataset in (
        Dataset.from_tensor_slices(list(ordered)).shuffle(9).interleave(tf.data.TFRecordDataset),
        Dataset.from_tensor_slices(list(ordered)).batch(3).flat_map(tf.data.TFRecordDataset),
        Dataset.from_tensor_slices(list(ordered))
        .map(lambda name: (7, name))
        .interleave(lambda _, name: tf.data.TFRecordDataset(name)),
    ):
        (found,) = find_files(dataset.batch(2), workers=2)
        assert found.names == ordered
    (endless,) = find_files(
        tf.data.TFRecordDataset(Dataset.from_tensor_slices(list(ordered)).repeat()), workers=2
    )
    assert endless.count == ENDLESS and endless.names[:5] == (*ordered, ordered[0])
