"""benchmarks.simulate on the real tool, which `make tools` and `make test-core` build."""

from __future__ import annotations

import contextlib
import csv
import math
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import simulate
from benchmarks.contest import _in_sessions
from tests.support.processes import REPOSITORY, wait_until

pytestmark = [
    pytest.mark.any_line,
    pytest.mark.skipif(not simulate._TOOL.exists(), reason="run `make tools` first"),
]

ALPHA, BETA, GAMMA = 50e-6, 0.8e-9, 0.1e-9  # the preset alpha_beta


def test_predictions_are_the_closed_forms():
    algorithms = ["ring", "recursive_doubling", "halving_doubling", "binary_blocks"]
    rows = list(simulate.simulate(algorithms, ["alpha_beta"], [8, 1024], [1 << 14, 1 << 22]))
    assert len(rows) == 16
    for row in rows:
        size, length, levels = row["size"], row["bytes"], math.log2(row["size"])
        share = (size - 1) / size * length
        moved = 2 * share * BETA + share * GAMMA
        expected = {
            "ring": 2 * (size - 1) * ALPHA + moved,
            "recursive_doubling": levels * (ALPHA + length * (BETA + GAMMA)),
            "halving_doubling": 2 * levels * ALPHA + moved,
            "binary_blocks": 2 * levels * ALPHA + moved,
        }[row["algorithm"]]
        assert row["seconds"] == pytest.approx(expected, rel=0.01), row
        assert row["chosen"] == (
            row["algorithm"] == ("recursive_doubling" if length == 1 << 14 else "halving_doubling")
        )


@pytest.mark.parametrize(
    ("topology", "size", "length", "chosen"),
    [
        ("alpha_beta", 64, 1 << 16, "recursive_doubling"),  # a network's latency
        ("alpha_beta", 6, 1 << 25, "ring"),
        ("nvlink", 8, 1 << 16, "halving_doubling"),  # one host
        ("nvlink", 64, 1 << 20, "hierarchical"),
        ("nvlink", 12, 1 << 20, "binary_blocks"),  # the second host is not full
        ("executor", 64, 1 << 16, "halving_doubling"),
    ],
)
def test_auto_is_what_a_communicator_chooses_there(topology, size, length, chosen):
    rows = simulate.simulate((*simulate._FLAT, "hierarchical"), [topology], [size], [length])
    assert [row["algorithm"] for row in rows if row["chosen"]] == [chosen]


def test_hierarchical_needs_full_hosts():
    rows = simulate.simulate(
        ["hierarchical", "hierarchical:ring"], ["alpha_beta", "nvlink"], [12, 16], [4096]
    )
    assert [(row["topology"], row["algorithm"], row["size"]) for row in rows] == [
        ("nvlink", "hierarchical", 16),
        ("nvlink", "hierarchical:ring", 16),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithms": ["tree"]}, "there is no algorithm 'tree'"),
        ({"algorithms": ["hierarchical:tree"]}, "there is no algorithm 'hierarchical:tree'"),
        ({"topologies": ["torus"]}, "there is no topology 'torus'"),
        ({"sizes": [1]}, "--sizes '1' are not whole numbers from 2 to 4096"),
        ({"lengths": [6]}, "--bytes 6 is not a multiple of 4"),
        ({"lengths": ["x"]}, "--bytes 'x' are not whole numbers"),
    ],
)
def test_refuses_what_it_does_not_know(change, message):
    asked = {"algorithms": ["ring"], "topologies": ["nvlink"], "sizes": [8], "lengths": [4096], **change}
    with pytest.raises(simulate.SimulationError, match=message):
        list(simulate.simulate(**asked))


def test_ends_at_its_deadline():
    with pytest.raises(simulate.SimulationError, match="did not end within 1 s: ask for fewer sizes"):
        list(simulate.simulate(["ring"], ["pcie"], [4096], [1 << 30], seconds=1))


def test_says_how_to_build_the_tool(monkeypatch, tmp_path):
    monkeypatch.setattr(simulate, "_TOOL", tmp_path / "simulate_schedule")
    with pytest.raises(simulate.SimulationError, match="simulate_schedule is missing: run `make tools`"):
        next(simulate.simulate(["ring"], ["nvlink"], [8], [4096]))


def test_writes_tables_and_plots(tmp_path, capsys):
    arguments = ["--topologies", "alpha_beta,nvlink", "--sizes", "8,24", "--bytes", "1024,4194304"]
    assert simulate.main([*arguments, "--choice-sizes", "8,6", "--out", str(tmp_path)]) == 0
    with (tmp_path / "simulate.csv").open() as file:
        rows = list(csv.DictReader(file))
    # 4 algorithms, and on nvlink two hierarchical ones.
    assert len(rows) == 2 * 2 * (4 + 6)
    text = (tmp_path / "simulate.md").read_text()
    assert text in capsys.readouterr().out
    assert (
        "| alpha_beta | 8 | 1,024 | 0.702 | **0.153** | 0.302 | 0.302 |  |  | recursive_doubling, 1.00× |"
        in text
    )
    assert (
        "| 8 | recursive_doubling 256, halving_doubling 32,768 | recursive_doubling 256, halving_doubling 32,768 |"
        in text
    )
    with (tmp_path / "choice.csv").open() as file:
        assert {row["topology"] for row in csv.DictReader(file)} == {"executor"}
    pytest.importorskip("matplotlib")
    for topology in ("alpha_beta", "nvlink"):
        assert (tmp_path / f"{topology}.png").read_bytes().startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--algorithms", "hierarchical", "--topologies", "alpha_beta", "--sizes", "8", "--choice-sizes", "2"],
        ["--algorithms", "ring", "--topologies", "alpha_beta", "--sizes", "8", "--choice-sizes", "200"],
    ],
)
def test_nothing_to_simulate_is_said(arguments, tmp_path, capsys):
    assert simulate.main([*arguments, "--bytes", "1024", "--no-plots", "--out", str(tmp_path)]) == 1
    assert "nothing to simulate: " in capsys.readouterr().err


def test_an_interrupted_run_leaves_no_tool_behind():
    code = "from benchmarks import simulate; print(*simulate.simulate(['ring'], ['pcie'], [4096], [1 << 30]))"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=REPOSITORY, stderr=subprocess.DEVNULL, start_new_session=True
    ) as front:
        wait_until(lambda: tools_of(front.pid), 30, "the tool")
        pids = tools_of(front.pid)
        front.send_signal(signal.SIGINT)
        front.wait(timeout=20)
    assert pids
    wait_until(lambda: not tools_of(front.pid), 10, "the end of the tool")


def tools_of(session: int) -> list[int]:
    found = []
    for pid in _in_sessions({session}):
        with contextlib.suppress(OSError):
            if b"simulate_schedule" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def test_crossings_are_where_the_names_change():
    times = {  # bytes: (ring, recursive_doubling); the choice is recursive_doubling up to 8
        4: (3.0, 1.0),
        8: (3.0, 2.0),
        16: (3.0, 2.5),
        32: (3.0, 6.0),
    }
    rows = [
        {
            "topology": "executor", "algorithm": algorithm, "size": 4, "bytes": length, "seconds": seconds,
            "chosen": (algorithm == "recursive_doubling") == (length <= 8),
        }
        for length, both in times.items()
        for algorithm, seconds in zip(("ring", "recursive_doubling"), both)
    ]  # fmt: skip
    assert simulate.crossings(rows) == [
        {
            "size": 4,
            "chosen": [(4, "recursive_doubling"), (16, "ring")],
            "best": [(4, "recursive_doubling"), (32, "ring")],
            "worst": 3.0 / 2.5,
            "at": 16,
        }
    ]
