"""On which server a variable, or each part of one, is placed."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")

import tf_strategies as tfs  # noqa: E402
from tests.support.partitions import thirds  # noqa: E402
from tf_strategies.parameter_server.variables.placement import Placement  # noqa: E402

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1

ROWS, WIDTH = 7, 2


def placed(placement: Placement, *shapes: list) -> list:
    return [
        placement.place(f"v{number}", tf.TensorShape(shape), tf.float32)
        for number, shape in enumerate(shapes)
    ]


def test_variables_go_to_the_server_with_the_fewest_bytes() -> None:
    placement = Placement(2)
    assert placed(placement, [10], [4], [4], [], [3]) == [[(0, 10)], [(1, 4)], [(1, 4)], [(1, 0)], [(1, 3)]]
    assert placement.bytes_by_server == [40, 48]


def test_variables_go_round() -> None:
    assert placed(Placement(2, "round_robin"), [10], [4], [4]) == [[(0, 10)], [(1, 4)], [(0, 4)]]


def test_a_function_places_variables() -> None:
    seen = []

    def place(name, shape, dtype, bytes_by_server):
        seen.append((name, shape.as_list(), dtype, bytes_by_server))
        return 1

    assert placed(Placement(2, place), [10], [4]) == [[(1, 10)], [(1, 4)]]
    assert seen == [("v0", [10], tf.float32, (0, 0)), ("v1", [4], tf.float32, (0, 40))]


@pytest.mark.parametrize("result", [2, -1, None, True, 0.0, "0"])
def test_what_is_no_server_is_refused(result) -> None:
    with pytest.raises(tfs.OptionsError, match=rf"'v0' on server {result!r}; return a number from 0 to 1"):
        placed(Placement(2, lambda *_: result), [10])


def test_parts_are_placed_one_by_one() -> None:
    assert placed(Placement(2, "bytes", thirds), [7, 2], []) == [[(0, 3), (1, 2), (1, 2)], [(0, 0)]]
    assert placed(Placement(2, "bytes", thirds), [2]) == [[(0, 1), (1, 1)]]


@pytest.mark.parametrize("parts", [[0, 1], [1, 2], [2], [2.0, 1], [True, 1], []])
def test_what_is_no_partition_is_refused(parts) -> None:
    with pytest.raises(tfs.OptionsError, match=r"cut variable 'v0' of shape \(7, 2\) into \["):
        placed(Placement(2, "bytes", lambda shape, dtype: parts), [7, 2])
