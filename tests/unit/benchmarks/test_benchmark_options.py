"""What the benchmarks refuse before anything starts, and what they say of a result."""

from __future__ import annotations

import pytest

from benchmarks import allreduce, between_hosts, fit, fit_report, timeline

pytestmark = pytest.mark.any_line


@pytest.mark.parametrize(
    ("main", "arguments", "message"),
    [
        (allreduce.main, ["--workers", "1,2"], "--workers are 2 to 64; got 1"),
        (allreduce.main, ["--bytes", "1024,6"], "--bytes are multiples of 4; got 6"),
        (allreduce.main, ["--wires", "rdma"], "--wires are of shared_memory, tcp; got rdma"),
        (allreduce.main, ["--contestants", "core,nccl"], "got nccl"),
        (allreduce.main, ["--rounds", "0"], "--rounds is 1 at least; got 0"),
        (allreduce.main, ["--starts", "0"], "--starts is 1 at least; got 0"),
        (allreduce.main, ["--contestants", "copy"], "--contestants besides copy, the limit, are needed"),
        (allreduce.main, ["--folder", __file__], "--folder is a folder; got"),
        (between_hosts.main, ["--hosts", "1"], "--hosts is 2 at least"),
        (between_hosts.main, ["--rounds", "0"], "--rounds are 1 at least"),
        (between_hosts.main, ["--bytes", "1023"], "multiples of 4; got 1023"),
        (
            between_hosts.main,
            ["--rate", "fast"],
            "a rate is a number above 0 with kbit, mbit, gbit; got 'fast'",
        ),
        (between_hosts.main, ["--rate", "0gbit"], "got '0gbit'"),
        (between_hosts.main, ["--rate=-1gbit"], "got '-1gbit'"),
        (between_hosts.main, ["--rate", "nangbit"], "got 'nangbit'"),
        (between_hosts.main, ["--rate", "gbit"], "got 'gbit'"),
        (between_hosts.main, ["--algorithms", "bruck"], "got bruck"),
        (between_hosts.main, ["--workers-per-host", "1", "--algorithms", "hierarchical"], "got hierarchical"),
        (fit.main, ["--models", "mlp,lstm"], "--models are of mlp, resnet50, embedding; got lstm"),
        (fit.main, ["--systems", "ours,nccl"], "got nccl"),
        (fit.main, ["--workers", "4,1"], "--workers are 2 at least; got 1"),
        (fit.main, ["--steps", "0"], "--steps is 1 at least; got 0"),
        (fit.main, ["--image-size", "0"], "--image-size is 1 at least; got 0"),
        (fit.main, ["--transport", "rdma"], "invalid choice: 'rdma'"),
        (timeline.main, ["--workers", "1"], "two workers and a step at least"),
        (timeline.main, ["--bytes-per-pack", "0"], "--bytes-per-pack is 1 at least; got 0"),
    ],
)
def test_what_cannot_be_measured_is_refused(main, arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_rate_is_read_as_tc_reads_it():
    assert between_hosts.bits_per_second("1.5gbit") == 1.5e9
    assert between_hosts.bits_per_second("100mbit") == 1e8
    with pytest.raises(ValueError, match="kbit, mbit, gbit; got '12'"):
        between_hosts.bits_per_second("12")


def test_a_verdict_says_what_was_wanted_and_what_came():
    place = {"model": "mlp", "workers": 2, "share_of_ideal": 0.5, "largest_pack": "", "extra_bytes": ""}
    slower = {**place, "system": "mwms", "over_ours": 2.9}
    assert fit_report.verdicts([slower]) == ["- mlp, P=2: mwms / ours = 2.90, wanted ≥ 3: NOT reached"]
    assert fit_report.verdicts([{**slower, "over_ours": 3.1}]) == [
        "- mlp, P=2: mwms / ours = 3.10, wanted ≥ 3: reached"
    ]
    ours = {
        **place, "model": "resnet50", "system": "ours", "over_ours": 1.0, "share_of_ideal": 0.89,
        "largest_pack": 9_400_000, "extra_bytes": 9_500_000,
    }  # fmt: skip
    line, memory = fit_report.verdicts([ours])
    assert "ours at 89% of 2 processes side by side" in line
    assert line.endswith("wanted ≥ 90%: NOT reached")
    assert memory == (
        "- resnet50, P=2: ours needs 9.5 MB beyond side by side, wanted ≤ the largest pack, 9.4 MB: NOT reached"
    )
