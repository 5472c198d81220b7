"""The notebook among the examples runs as it stands."""

from __future__ import annotations

import re

import pytest

from tests.support.notebooks import run_notebook
from tests.support.processes import REPOSITORY


@pytest.mark.any_line
def test_the_notebook_goes_from_one_process_to_four_with_the_same_result() -> None:
    text = (REPOSITORY / "examples" / "13_notebook.ipynb").read_text()
    outputs = run_notebook(text, timeout=120)
    assert re.search(r"^rank 0 of 1: accuracy 0\.[89]\d$", outputs[2], re.M)
    for rank in range(4):
        assert re.search(rf"^worker {rank} \| rank {rank} of 4: accuracy 0\.[89]\d$", outputs[3], re.M)
    losses = re.findall(r"loss (\d\.\d{5}) in one process, (\d\.\d{5}) with four", outputs[4])
    assert len(losses) == 5
    assert all(abs(float(one) - float(four)) <= 2e-5 for one, four in losses)
    assert re.search(r"^largest difference of a weight from one process: \de-0[678]$", outputs[4], re.M)
    assert re.search(r"^largest difference between workers: 0$", outputs[4], re.M)
