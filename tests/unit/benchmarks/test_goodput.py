"""benchmarks.goodput against closed forms that hold when failures are rare, and where they are not."""

from __future__ import annotations

import random

import pytest

from benchmarks import goodput

pytestmark = pytest.mark.any_line

TIMES = goodput.Times(lost=1.1, joined=2.0, back=600.0, restart=120.0, save=10.0)
DAY = 86400.0


@pytest.mark.parametrize(("size", "days"), [(8, 7), (64, 30), (4096, 365)])
def test_rare_failures_cost_what_the_closed_forms_say(size, days):
    mean = days * DAY
    failures = size / mean
    idle = failures * (TIMES.lost + TIMES.joined) + TIMES.back / mean
    assert 1 - goodput.elastic(size, mean, TIMES, random.Random(1)) == pytest.approx(idle, rel=0.1)
    interval = goodput.interval_of(size, mean, TIMES)
    idle = TIMES.save / interval + failures * (interval / 2 + TIMES.restart)
    assert 1 - goodput.restarts(size, mean, TIMES, random.Random(1)) == pytest.approx(idle, rel=0.1)


def test_where_all_workers_fail_again_and_again_little_is_left():
    times = TIMES._replace(back=10.0)
    assert goodput.elastic(1, 10.0, times, random.Random(1)) == pytest.approx(10 / (10 + 10 + 2), rel=0.1)
    assert goodput.restarts(4096, DAY, times, random.Random(1)) < 0.01


def test_the_command_prints_a_row_for_each_case_and_draws(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="draws")
    assert goodput.main(["--sizes", "8,4096", "--days", "7,30", "--plot", str(tmp_path / "plot.png")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1:3] for line in lines[2:]] == [
        [" 8 ", " 7 "],
        [" 8 ", " 30 "],
        [" 4,096 ", " 7 "],
        [" 4,096 ", " 30 "],
    ]
    assert (tmp_path / "plot.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    "arguments", [["--sizes", "0"], ["--days", "0"], ["--lost", "nan"], ["--save", "-1"]]
)
def test_wrong_numbers_are_refused(arguments, capsys):
    with pytest.raises(SystemExit):
        goodput.main(arguments)
    assert arguments[1] in capsys.readouterr().err
