"""How far trainings are from those of one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Dict, List

import numpy as np

from tests.exactness.programs.registry import PROGRAMS

__all__ = ["differences", "require_equal_bits"]


def differences(folder: Path, plain: Path) -> Dict[str, Dict[str, float]]:
    """Returns, by program, the largest difference of a weight ("weights") and of a log ("logs") from plain Keras.

    Differences of weights are absolute. Those of logs are relative where the value is above 1.

    Args:
        folder: what the workers kept; the chief's is compared.
        plain: what one process with Keras alone kept.
    """
    mine, alone = (
        json.loads((folder / "worker0.json").read_text()),
        json.loads((plain / "plain.json").read_text()),
    )
    found = {}
    for name, trained in mine.items():
        expected = alone[PROGRAMS[name].reference or name]
        assert set(trained["logs"]) == set(expected["logs"]), (name, trained["logs"], expected["logs"])
        found[name] = {
            "weights": _largest(trained["weights"], expected["weights"]),
            "logs": _largest(
                [trained["logs"][key] for key in trained["logs"]],
                [expected["logs"][key] for key in trained["logs"]],
                relative=True,
            ),
        }
    return found


def require_equal_bits(folder: Path, workers: int) -> None:
    """All workers have kept the same weights and logs, bit by bit."""
    kept = [json.loads((folder / f"worker{rank}.json").read_text()) for rank in range(workers)]
    for rank, other in enumerate(kept[1:], start=1):
        different = [name for name in kept[0] if other[name] != kept[0][name]]
        assert not different, f"worker {rank} differs from worker 0 in {different}"


def _largest(mine: List, expected: List, *, relative: bool = False) -> float:
    assert len(mine) == len(expected)
    scales = [np.maximum(1.0, np.abs(each)) if relative else 1.0 for each in expected]
    parts = [
        np.max(np.abs(np.subtract(a, b)) / scale, initial=0.0) for a, b, scale in zip(mine, expected, scales)
    ]
    return float(np.max(parts, initial=0.0))
