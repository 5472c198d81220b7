"""Tables and verdicts of benchmarks.allreduce, on rows of a real (and disturbed) run; limits."""

from __future__ import annotations

import pytest

from benchmarks import allreduce_report as report
from benchmarks import limits
from benchmarks.contest import Measured

pytestmark = pytest.mark.any_line

ROWS = """wire,workers,bytes,contestant,calls,rounds,median_ms,min_ms,max_ms,ratio_to_core,limit_ms,extra_bytes
shared_memory,2,1024,core,2000,3,0.005,0.004,0.007,1,0.00001,1024
shared_memory,2,1024,core_ring,2000,3,0.008,0.007,0.009,1.6,0.00001,1024
shared_memory,2,1024,op,1034,3,0.02,0.018,0.1,4,0.00001,4096
shared_memory,2,1024,ring,110,3,0.5,0.4,0.6,100,0.00001,4096
shared_memory,2,1024,openmpi,2000,3,0.002,0.002,0.002,0.4,0.00001,1024
shared_memory,2,67108864,core,5,3,60,50,70,1,30,3145728
shared_memory,2,67108864,core_ring,5,3,50,45,80,0.8333,30,3145728
shared_memory,2,67108864,op,5,3,48,47,49,0.8,30,75497472
shared_memory,2,67108864,ring,3,3,650,600,700,10.8,30,343932928
shared_memory,2,67108864,openmpi,3,3,61,60,62,1.01,30,34225520
shared_memory,2,67108864,openmpi_ring,3,3,150,60,300,2.5,30,34225520
shared_memory,3,67108864,core,5,3,80,75,90,1,32,3145728
shared_memory,3,67108864,op,5,3,200,190,210,2.5,32,75497472
shared_memory,3,67108864,ring,3,3,720,700,740,9,32,343932928
tcp,2,1024,core,2000,3,0.03,0.02,0.04,1,,1024
"""


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "allreduce.csv"
    path.write_text(ROWS)
    return report.read(path)


def target(text: str) -> report.Target:
    (found,) = (each for each in report.TARGETS if each.text.startswith(text))
    return found


@pytest.mark.parametrize(
    ("text", "met", "points", "worst"),
    [
        ("op ≥ 6× TF RING", 2, 3, (720 / 200, 3, 64 << 20)),
        ("op ≥ 12× TF RING, P=2", 1, 1, (650 / 48, 2, 64 << 20)),
        ("core ≥ 1.3× the better Open MPI", 0, 1, (61 / 60, 2, 64 << 20)),
        ("core ≥ the better Open MPI below", 0, 1, (0.002 / 0.005, 2, 1024)),
        ("op within 1.5×", 1, 3, (0.005 / 0.02, 2, 1024)),
        ("auto within 10 %", 1, 2, (50 / 60, 2, 64 << 20)),
        ("core, 64 MB, P=2", 0, 1, (30 / 60, 2, 64 << 20)),
    ],
)
def test_targets_are_held_against_the_best_of_the_others(rows, text, met, points, worst):
    found = report.verdict(target(text), rows, "shared_memory")
    assert (found.met, found.points) == (met, points)
    assert found.worst == pytest.approx(worst)


def test_a_target_without_its_peer_is_not_measured(rows):
    assert report.verdict(target("op ≥ 2.5× Horovod"), rows, "shared_memory") is None
    assert report.verdict(target("op ≥ 6× TF RING"), rows, "tcp") is None
    assert "| op ≥ 2.5× Horovod | not measured | | |" in report.verdicts(rows, "shared_memory")


def test_tables_have_bytes_down_and_contestants_across(rows):
    assert report.table(rows, "shared_memory", 2).splitlines() == [
        "| bytes | core | core, ring | op | TF RING | Open MPI | Open MPI, ring | op vs RING | core vs better Open MPI "
        "| op / core | core / best algorithm | core / limit | limit |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
        "| 1,024 | 0.005 | 0.008 | 0.02 | 0.5 | 0.002 | – | 25.00× | 0.40× | 4.00× | 0.62× | 500× | < 0.001 |",
        "| 67,108,864 | 60 | 50 | 48 | 650 | 61 | 150 | 13.54× | 1.02× | 0.80× | 1.20× | 2.00× | 30 |",
    ]


def test_memory_is_counted_in_messages(rows):
    lines = report.memory(rows, "shared_memory").splitlines()
    assert lines[0] == "| 67,108,864 bytes | P=2 | P=3 |"
    assert "| op | 1.12× | 1.12× |" in lines
    assert "| Open MPI | 0.51× | – |" in lines


def test_spread_names_the_worst(rows):
    assert "500" not in report.spread(rows, "shared_memory", 3)
    assert "410% at most (op, 1,024 bytes)" in report.spread(rows, "shared_memory", 2)


def test_reports_and_plots_are_written_again_from_the_file(rows, tmp_path):
    pytest.importorskip("matplotlib")
    names = [path.name for path in report.write_report(rows, tmp_path)]
    assert names == ["allreduce.md", "allreduce_shared_memory.png", "allreduce_tcp.png"]
    assert (tmp_path / names[1]).read_bytes().startswith(b"\x89PNG")
    assert report.report(rows) == (tmp_path / names[0]).read_text()


def test_a_point_has_median_spread_and_ratio():
    measured = {
        "core": Measured([2e-3, 1e-3, 4e-3], 75),
        "gloo": Measured([5e-3, 3e-3, 9e-3], 30),
    }
    core, gloo = report.rows_of("tcp", 4, 4096, measured, 5e-4)
    assert core == {
        "wire": "tcp", "workers": 4, "bytes": 4096, "contestant": "core", "calls": 75, "rounds": 3, "median_ms": 2,
        "min_ms": 1, "max_ms": 4, "ratio_to_core": 1, "limit_ms": 0.5, "extra_bytes": None,
    }  # fmt: skip
    assert (gloo["median_ms"], gloo["ratio_to_core"], gloo["max_ms"]) == (5, 2.5, 9)
    (alone,) = report.rows_of("tcp", 4, 4096, {"gloo": measured["gloo"]}, None)
    assert (alone["ratio_to_core"], alone["limit_ms"]) == (None, None)


@pytest.mark.parametrize(("ranks", "cores", "streams_bytes"), [(2, 2, 2), (4, 2, 6), (4, 8, 3), (2, 8, 2)])
def test_tcp_limit_counts_the_streams_that_the_cores_carry(ranks, cores, streams_bytes):
    assert limits.tcp_limit(1000, ranks, 500.0, cores) == pytest.approx(streams_bytes * 1000 / 500)


def test_bandwidth_is_that_overall():
    printed = (
        "+-----------+\n| API:    protocol layer     |\n"
        "                        4000      2.772   139.564   139.565     1790.30    1791.25        7165        7165\n"
    )
    assert limits.parse_bandwidth(printed) == 1791.25 * 2**20
    with pytest.raises(limits.LimitError, match="printed no result: 'no route"):
        limits.parse_bandwidth("no route to host")
