"""What holds for IndexedSlices whichever way they are added up, in three real processes with two replicas each."""

from __future__ import annotations

from pathlib import Path

from tests.support.checks import require_checks


def test_slices_on_three_workers_with_two_replicas_each(tmp_path: Path) -> None:
    require_checks(tmp_path, "tests.cluster.collective.sparse_behaviour_worker", "2", workers=3)
