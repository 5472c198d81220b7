"""Options of local steps."""

from __future__ import annotations

from typing import Any, Dict

import pytest

from tf_strategies.errors import OptionsError
from tf_strategies.local_sgd import DiLoCo, LocalSGD


def test_local_sgd_moves_the_whole_way_to_the_average() -> None:
    options = LocalSGD(sync_every=4)
    assert (options.warmup_steps, options.quantize) == (0, None)
    outer = (options.outer_learning_rate, options.outer_momentum)
    assert (*outer, options.fragments, options.overlap_steps) == (1, 0, 1, 0)


def test_diloco_is_local_sgd_with_an_outer_optimizer() -> None:
    options = DiLoCo(sync_every=100, quantize=4)
    assert isinstance(options, LocalSGD)
    outer = (options.outer_learning_rate, options.outer_momentum)
    assert (*outer, options.fragments, options.overlap_steps) == (0.7, 0.9, 1, 0)
    assert DiLoCo(sync_every=5, fragments=2, overlap_steps=2).overlap_steps == 2
    assert options == DiLoCo(sync_every=100, outer_momentum=0.9, quantize=4) != DiLoCo(sync_every=100)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sync_every": 0}, r"^sync_every must be a whole number, at least 1; got 0$"),
        ({"sync_every": 2.5}, r"^sync_every must be a whole number, at least 1; got 2.5$"),
        ({"warmup_steps": -1}, r"^warmup_steps must be a whole number, at least 0; got -1$"),
        ({"quantize": 16}, r"^quantize must be None, 4 or 8 \(bits\); got 16$"),
        ({"quantize": True}, r"^quantize must be None, 4 or 8 \(bits\); got True$"),
        ({"outer_learning_rate": 0}, r"^outer_learning_rate must be a finite number above 0; got 0$"),
        (
            {"outer_learning_rate": float("inf")},
            r"^outer_learning_rate must be a finite number above 0; got inf$",
        ),
        ({"outer_momentum": 1}, r"^outer_momentum must be at least 0 and below 1; got 1$"),
        ({"outer_momentum": "0.9"}, r"^outer_momentum must be at least 0 and below 1; got '0.9'$"),
        ({"fragments": 0}, r"^fragments must be a whole number, at least 1; got 0$"),
        ({"fragments": True}, r"^fragments must be a whole number, at least 1; got True$"),
        ({"fragments": 3}, r"^fragments must be at most sync_every=2, so that .*; got 3$"),
        ({"overlap_steps": -1}, r"^overlap_steps must be a whole number, at least 0; got -1$"),
        (
            {"overlap_steps": 2},
            r"^overlap_steps must be below sync_every / fragments = 2, so that .*; got 2$",
        ),
        (
            {"sync_every": 5, "fragments": 2, "overlap_steps": 3},
            r"^overlap_steps must be below sync_every / fragments = 2.5, so that .*; got 3$",
        ),
    ],
)
def test_wrong_values_are_refused(given: Dict[str, Any], message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        DiLoCo(**{"sync_every": 2, **given})
