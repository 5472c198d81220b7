"""Checks of the calls that a program makes outside of replica functions: values, objects, and who comes first."""

from __future__ import annotations

import re
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from tests.cluster.collective.behaviour.models import make_model
from tests.cluster.collective.modes.models import calls
from tests.support.processes import wait_until


def require_error(kind: type, pattern: str, function: Callable[[], Any]) -> None:
    try:
        function()
    except kind as error:
        assert re.search(pattern, str(error), re.S), error
    else:
        raise AssertionError(f"no error like {pattern}")


def check_who_is_who(strategy, folder) -> None:
    assert (strategy.local_rank, strategy.local_size) == (strategy.rank, strategy.size)
    assert strategy.is_chief == (strategy.rank == 0)
    resolver = strategy.cluster_resolver
    assert (resolver.task_type, resolver.task_id) == ("worker", strategy.rank)
    assert len(resolver.cluster_spec().as_dict()["worker"]) == strategy.size


def check_all_reduce_of_arrays_numbers_tensors_and_structures(strategy, folder) -> None:
    size, mine = strategy.size, strategy.rank + 1
    numbers = np.arange(1, size + 1)
    expected = {
        "sum": numbers.sum(),
        "mean": numbers.mean(),
        "min": 1,
        "max": size,
        "product": numbers.prod(),
    }
    for dtype in ("float32", "float64", "float16", "bfloat16", "int32", "int64"):
        for reduction, number in expected.items():
            given = tf.fill([5, 2], tf.cast(mine, dtype))
            for value in (given, given.numpy()):
                result = strategy.all_reduce(value, reduction)
                exact = np.float64 if reduction == "mean" and dtype.startswith("int") else given.numpy().dtype
                assert type(result) is type(value) and result.dtype == exact, (result, value)
                np.testing.assert_array_equal(np.array(result, np.float64), np.full([5, 2], number))
    array = np.arange(7.0) * mine
    given = {"z": [array, mine], "a": (0.5 * mine, tf.Variable([mine]), np.float32(mine)), "none": []}
    result = strategy.all_reduce(given)
    np.testing.assert_array_equal(array, np.arange(7.0) * mine)
    np.testing.assert_array_equal(result["z"][0], np.arange(7.0) * numbers.sum())
    assert type(result["z"][1]) is int and result["z"][1] == numbers.sum()
    assert result["a"][0] == 0.5 * numbers.sum() and type(result["a"][0]) is float
    assert isinstance(result["a"][1], tf.Tensor) and type(result["a"][2]) is np.float32
    assert result["none"] == [] and list(result) == list(given)
    assert strategy.all_reduce(np.zeros([0, 3]), "product").shape == (0, 3)
    assert strategy.all_reduce(np.float64(mine), "product") == numbers.prod()
    weights = make_model(strategy).trainable_variables
    for weight, total in zip(weights, strategy.all_reduce(list(weights))):
        np.testing.assert_allclose(total, size * weight.numpy(), rtol=1e-6)


def check_broadcast_gather_and_all_to_all(strategy, folder) -> None:
    size, rank = strategy.size, strategy.rank
    for root in range(size):
        got = strategy.broadcast({"a": np.full(3, rank, "uint8"), "b": [rank > 0, float(rank), rank]}, root)
        np.testing.assert_array_equal(got["a"], np.full(3, root, "uint8"))
        assert got["b"] == [root > 0, float(root), root] and got["a"].dtype == np.uint8
    rows = strategy.all_gather(np.full([rank, 2], rank))
    np.testing.assert_array_equal(rows[:, 0], np.repeat(np.arange(size), np.arange(size)))
    sent = tf.constant([[10 * rank + to] for to in range(size) for _ in range(to)])
    received, lengths = strategy.all_to_all(sent, splits=range(size))
    np.testing.assert_array_equal(lengths, [rank] * size)
    np.testing.assert_array_equal(
        received[:, 0], [10 * sender + rank for sender in range(size) for _ in range(rank)]
    )
    received, lengths = strategy.all_to_all(np.arange(size) + 100 * rank)
    np.testing.assert_array_equal(received, 100 * np.arange(size) + rank)
    assert isinstance(received, np.ndarray) and isinstance(lengths, np.ndarray)


def check_objects(strategy, folder) -> None:
    mine = {
        "rank": strategy.rank,
        "rows": [np.arange(strategy.rank + 1.0), b"\0" * 10 ** (3 * strategy.rank)],
    }
    everyone = strategy.all_gather_object(mine)
    assert [each["rank"] for each in everyone] == list(range(strategy.size))
    for rank, each in enumerate(everyone):
        np.testing.assert_array_equal(each["rows"][0], np.arange(rank + 1.0))
        assert each["rows"][1] == b"\0" * 10 ** (3 * rank)
    last = strategy.size - 1
    got = strategy.broadcast_object(
        ("caf\u00e9", None, last) if strategy.rank == last else object(), root=last
    )
    assert got == ("caf\u00e9", None, last)
    assert strategy.broadcast_object() is None
    strategy.barrier()


def check_calls_that_differ_are_an_error_on_all_and_the_group_goes_on(strategy, folder) -> None:
    odd, zeros = int(strategy.rank == 1), np.zeros(3, "float32")
    differing = {
        (r"all_reduce\(.*'sum'", r"all_reduce\(.*'max'"): lambda: strategy.all_reduce(
            zeros, ("sum", "max")[odd]
        ),
        (r"all_reduce\(float32\[3\]", r"all_reduce\(float32\[4\]"): lambda: strategy.all_reduce(
            np.zeros(3 + odd, "f4")
        ),
        (r"broadcast\(float32", r"broadcast\(float64"): lambda: strategy.broadcast(
            np.zeros(3, ("f4", "f8")[odd])
        ),
        ("broadcast.*root=0", "broadcast.*root=1"): lambda: strategy.broadcast(zeros, odd),
        (r"\(float32\[rows, 3\]", r"\(float32\[rows, 4\]"): lambda: strategy.all_gather(
            np.zeros([odd, 3 + odd], "f4")
        ),
        (r"barrier\(\)", r"all_gather_object\(\)"): lambda: (
            strategy.barrier,
            lambda: strategy.all_gather_object(1),
        )[odd](),
        (r"\(\[float64\[\]", r"\(\{'a': float64\[\]"): lambda: strategy.all_reduce(([1.0], {"a": 1.0})[odd]),
    }
    for (first, second), call in differing.items():
        require_error(ValueError, f"worker 0 .*calls .*{first}.*but worker 1 .*calls .*{second}", call)
    wrong = {
        "TypeError.*cannot send a set": lambda: strategy.all_gather_object((1, {1})[odd]),
        "TypeError.*builtins.str.*broadcast_object": lambda: strategy.all_reduce((1, "1")[odd]),
        "TypeError.*cannot reduce bool": lambda: strategy.all_reduce((1, True)[odd]),
        "ValueError.*add up to 6; got": lambda: strategy.all_to_all(np.zeros(6), ([2, 2, 2], [3, 3, 1])[odd]),
        "ValueError.*'sum', 'mean'.*; got 'average'": lambda: strategy.all_reduce(
            1, ("mean", "average")[odd]
        ),
        "ValueError.*rank must be a whole number from 0 to 2; got 3": lambda: strategy.broadcast(
            1, (0, 3)[odd]
        ),
    }
    for text, call in wrong.items():
        kind, _, own = text.partition(".*")
        if odd:
            require_error({"TypeError": TypeError, "ValueError": ValueError}[kind], own, call)
        else:
            require_error(ValueError, rf"worker 1 \(.*\) cannot take part: {text}", call)
    strategy.barrier()


def check_calls_in_replica_functions_and_graphs_are_refused(strategy, folder) -> None:
    def total():
        return strategy.all_reduce(1.0)

    require_error(RuntimeError, "all_reduce in a replica function", lambda: strategy.run(total))
    require_error(RuntimeError, "all_reduce in a tf.function", tf.function(total))
    with strategy.scope():
        assert strategy.all_reduce(1) == strategy.size
        assert float(strategy.all_reduce(tf.Variable(2.0))) == 2 * strategy.size


def check_the_chief_comes_first_however_long_it_takes(strategy, folder) -> None:
    file, before = folder / "downloaded", strategy._group.timeout
    strategy._group.timeout = 0.4  # so the owner of the block tells the others every 0.1 s that it is busy
    for name in ("only_on_chief", "once_per_host"):
        with getattr(strategy, name)() as mine:
            assert mine == (strategy.rank == 0)
            if mine:
                told = calls(strategy)
                wait_until(
                    lambda told=told: calls(strategy) >= told + 3, 20, "messages to the waiting workers"
                )
                file.write_text(name)
        assert file.read_text() == name
    strategy._group.timeout = before

    def fails(rank: int) -> None:
        with strategy.only_on_chief():
            if strategy.rank == rank:
                raise OSError("404 not found")

    for rank in (0, 2):
        kind, who = (
            (OSError, "")
            if strategy.rank == rank
            else (RuntimeError, rf"only_on_chief.*worker {rank} \(.*OSError: ")
        )
        require_error(kind, who + "404 not found", lambda: fails(rank))

    def meets() -> None:
        with strategy.only_on_chief():
            strategy.barrier()

    require_error(RuntimeError, r"barrier\(\) in the block of only_on_chief\(\)", meets)
    strategy.barrier()


def check_subgroups_make_calls_of_their_own(strategy, folder) -> None:
    pairs = {ranks: strategy.subgroup(ranks) for ranks in ((0, 2), (2, 1), (1,))}
    for ranks, part in pairs.items():
        assert (part is None) == (strategy.rank not in ranks)
        if part is None:
            continue
        assert (part.ranks, part.size, ranks[part.rank]) == (ranks, len(ranks), strategy.rank)
        for reduction, expected in (("sum", sum(ranks)), ("max", max(ranks)), ("product", np.prod(ranks))):
            result = part.all_reduce(np.full(100_000, strategy.rank), reduction)
            np.testing.assert_array_equal(result, np.full(100_000, expected))
        assert part.broadcast(strategy.rank, root=part.size - 1) == ranks[-1]
        assert part.all_gather_object(strategy.rank) == list(ranks)
        with part.only_on_chief() as mine:
            assert mine == (strategy.rank == ranks[0])
    if strategy.rank != 1:
        odd = strategy.rank == 2
        pattern = r"worker 0 \(.*barrier\(\).*worker 2 \(.*all_gather_object"
        part = pairs[0, 2]
        require_error(ValueError, pattern, lambda: part.all_gather_object(1) if odd else part.barrier())
    for part in pairs.values():
        if part is not None:
            part.close()
    require_error(ValueError, "subgroup.*each once", lambda: strategy.subgroup([1, 1]))
    with strategy.scope():
        assert strategy.all_reduce(1) == strategy.size
