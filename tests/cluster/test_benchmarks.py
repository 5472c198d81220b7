"""benchmarks.allreduce with real contestants, those that this environment has."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks import allreduce, allreduce_report
from benchmarks.allreduce_contestants import CONTESTANTS
from tests.support.processes import REPOSITORY, light_environment

pytestmark = pytest.mark.any_line


def run(folder, *arguments: str) -> tuple[str, list[dict]]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.allreduce", "--rounds", "2", "--folder", str(folder), *arguments],
        cwd=REPOSITORY,
        env=light_environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, allreduce_report.read(folder / "allreduce.csv")


def test_contestants_are_measured_and_those_missing_are_named(tmp_path):
    wanted = ("core", "core_binary_blocks", "op", "ring", "horovod", "gloo", "openmpi")
    text, rows = run(
        tmp_path, "--workers", "2", "--bytes", "1024,65536", "--wires", "shared_memory",
        "--contestants", ",".join(wanted),
    )  # fmt: skip
    present = [name for name in (*wanted, "copy") if not CONTESTANTS[name].missing()]
    assert {"op", "ring"} <= set(present)
    assert [(row["bytes"], row["contestant"]) for row in rows] == [
        (size, name) for size in (1024, 65536) for name in present
    ]
    for row in rows:
        assert (row["wire"], row["workers"], row["rounds"]) == ("shared_memory", 2, 2)
        assert 0 < row["min_ms"] <= row["median_ms"] <= row["max_ms"] < 10_000
    for name in set(wanted) - set(present):
        assert f"without {name}: {CONTESTANTS[name].missing()}" in text
    assert allreduce_report.table(rows, "shared_memory", 2) in text
    assert (tmp_path / "allreduce_shared_memory.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(bool(CONTESTANTS["core"].missing()), reason="run `make tools` first")
def test_tcp_has_the_limit_of_ucx_perftest(tmp_path):
    text, rows = run(
        tmp_path, "--workers", "3", "--bytes", "1048576", "--wires", "tcp", "--contestants", "core,core_ring"
    )
    assert [row["contestant"] for row in rows] == ["core", "core_ring", "copy"]
    assert {row["limit_ms"] > 0 for row in rows} == {True}
    assert "one stream of TCP on lo" in text
    core, ring, _ = rows
    assert ring["ratio_to_core"] == pytest.approx(ring["median_ms"] / core["median_ms"])
    # The ring cuts the message in three and needs no more than one such part at a time beside it, and what TCP buffers.
    assert 0 <= ring["extra_bytes"] < 64 << 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "1,2"], "--workers are 2 to 64; got 1"),
        (["--bytes", "1024,6"], "--bytes are multiples of 4; got 6"),
        (["--wires", "rdma"], "--wires are of shared_memory, tcp; got rdma"),
        (["--contestants", "core,nccl"], "got nccl"),
        (["--rounds", "0"], "--rounds is 1 at least; got 0"),
    ],
)
def test_bad_options_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit):
        allreduce.main(arguments)
    assert message in capsys.readouterr().err
