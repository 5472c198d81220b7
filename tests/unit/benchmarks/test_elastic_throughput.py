"""Tests what a run is worth in which workers are killed, with steps whose times are known."""

from __future__ import annotations

import pytest

from benchmarks.elastic_throughput import Step, kept_speed, main, steps_of

pytestmark = pytest.mark.any_line


def test_a_loss_is_time_in_which_no_step_ends(tmp_path):
    """Ten steps of a second by four workers, one that takes 3 s more, and nine of half a second by three."""
    ends = [float(number) for number in range(16)] + [18.5 + number / 2 for number in range(10)]
    lines = [f"{number} {at} {4 if at < 16 else 3}\n" for number, at in enumerate(ends)]
    (tmp_path / "steps71").write_text("".join(lines))
    (tmp_path / "steps72").write_text(f"3 2.5 4\n{lines[7]}")  # another worker that ended step 3 earlier
    steps = steps_of(tmp_path)
    assert steps[3] == Step(2.5, 4)
    speed, worth_of = kept_speed(steps, enough=10)
    assert worth_of == {4: 1.0, 3: 0.5}
    assert speed == pytest.approx((10 * 1.0 + 10 * 0.5) / (10 * 1.0 + 3.5 + 9 * 0.5))
    assert kept_speed(steps, enough=11)[1] == {4: 1.0, 3: 1.0}, "few steps are worth as much as those of all"
    del steps[9]
    with pytest.raises(ValueError, match="of steps 5 to 25, only 20 were finished"):
        kept_speed(steps)


def test_two_workers_are_too_few(capsys):
    with pytest.raises(SystemExit):
        main(["--workers", "2"])
    assert "--workers is 3 at least; got 2" in capsys.readouterr().err
