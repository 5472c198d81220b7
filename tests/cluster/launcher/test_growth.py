"""tfs-run starts further workers on places that appear, and none where places have gone."""

from __future__ import annotations

import json
import re
import signal

import pytest

from tests.support.processes import wait_until

pytestmark = [pytest.mark.any_line, pytest.mark.quick, pytest.mark.waits]

CODE = """
runs = len(list(folder.glob(f"run-{index}-*")))
restarted = os.environ.get("TF_STRATEGIES_RESTARTED", "")
(folder / f".run-{index}-{runs}").write_text(json.dumps([len(config["cluster"]["worker"]), restarted]))
(folder / f".run-{index}-{runs}").rename(folder / f"run-{index}-{runs}")
while not (folder / "go").exists():
    if (folder / f"lose-{index}-{runs}").exists():
        sys.exit(9)
    time.sleep(0.02)
"""


def test_workers_start_on_places_that_appear(launcher):
    folder = launcher.folder
    hosts = folder / "hosts"

    def has_run(index: int, run: int) -> list[object]:
        path = folder / f"run-{index}-{run}"
        wait_until(path.exists, 20, f"run {run} of worker {index}")
        return json.loads(path.read_text())

    hosts.write_text("localhost:1\n")
    asked = folder / "asked"
    asked.touch()
    command = f"sh -c 'echo >> {asked}; cat {hosts}'"
    options = ("--workers", "1", "--max-workers", "3", "--restarts", "4", "--hosts-from", command)
    process = launcher.start(*options, code=CODE)
    assert has_run(0, 0) == [1, ""]
    hosts.write_text("localhost:9\n")
    assert has_run(1, 0) == [2, ""]
    assert has_run(2, 0) == [3, ""]
    (folder / "lose-0-0").touch()
    assert has_run(0, 1) == [3, "1"]  # it started with the shorter list
    hosts.write_text("localhost:2\n")
    before = asked.stat().st_size
    # tfs-run asks again when it has taken the answer of before.
    wait_until(lambda: asked.stat().st_size >= before + 2, 20, "the answer of two places")
    (folder / "lose-2-0").touch()
    process.wait_for_text("worker 2 ended with status 9 .* does not start again, because it has no place", 20)
    hosts.write_text("localhost:2\n127.0.0.1:1\n")
    process.wait_for_text("worker 2 starts again, because it has a place again .restarts left: 2", 20)
    (folder / "go").touch()
    assert process.wait(20) == 0
    assert re.search(
        r"worker 0 ended with status 9 .* starts again in 1 s \(restarts left: 3\)", process.log()
    )


def test_no_worker_starts_after_a_signal_to_end(launcher):
    options = ("--workers", "2", "--max-workers", "3", "--restarts", "4", "--grace", "0.3")
    code = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nnote()\nhold()"
    process = launcher.start(*options, "--hosts-from", "echo localhost:2", code=code)
    launcher.wait_for("worker0", "worker1")
    process.signal(signal.SIGTERM)
    assert process.wait(20) == 143
    assert process.log().count("ended by tfs-run with SIGKILL") == 2
    assert "go on" not in process.log()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--max-workers", "3"), "--max-workers and --hosts-from need each other"),
        (("--hosts-from", "true"), "--max-workers and --hosts-from need each other"),
        (
            ("--max-workers", "3", "--hosts-from", "false"),
            "--hosts-from false: it ended with status 1",
        ),
        (("--max-workers", "3", "--hosts-from", "true"), "places for 0 workers, fewer than --workers 2"),
        (("--max-workers", "1", "--hosts-from", "true"), "must be at least --workers 2"),
        (("--max-workers", "3", "--hosts-from", "true", "--ps", "1"), "starts workers alone, without --ps"),
        (
            ("--max-workers", "3", "--hosts-from", "echo localhost:2", "--min-workers", "3"),
            "--min-workers 3 is more than the 2 workers",
        ),
    ],
)
def test_wrong_options_are_errors_before_the_start(launcher, options, reason):
    status, log = launcher.run("--workers", "2", *options, code="note()")
    assert status == 2
    assert re.search(f"^tfs-run: error: .*{reason}", log, re.M), log
    assert launcher.seen() == {}
