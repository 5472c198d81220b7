"""Files of records are read as they were written, and anything else is refused with its path."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from tf_strategies.native import record_file
from tf_strategies.slow_wire import Sent
from tf_strategies.trace.main import main
from tf_strategies.trace.record import RecordError, read_folder

ONE = {
    "kind": "all_reduce",
    "name": 'a "name"',
    "instance": 3,
    "use": 1,
    "algorithm": "ring",
    "dtype": "float32",
    "bytes": 12,
    "submitted_ns": 1,
    "started_ns": 2,
    "ended_ns": 3,
    "last_peer": 1,
    "code": 0,
}


WITHOUT = {"subgroups": [], "connections": []}


def content(rank: int = 0, **fields: object) -> dict:
    base = {"names": ["worker 0", "worker 1"], "hosts": ["a", "a"], "failure": "", "clock_offset_ns": [0, 0]}
    return {
        **base,
        "rank": rank,
        "size": 2,
        "monotonic_ns": 9,
        "unix_ns": 9,
        "collectives": [ONE],
        **WITHOUT,
        **fields,
    }


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(record_file.FOLDER_VARIABLE, str(tmp_path / "records"))
    return tmp_path / "records"


def test_what_is_written_is_read(folder: Path) -> None:
    for rank in (1, 0):
        writer = record_file.RecordWriter(f"worker {rank}")
        path = writer.begin(255, content(rank))
        assert path == folder / "00000000000000ff" / f"worker-{rank}.json"
        writer.finish()
    records = read_folder(folder)
    assert [record.rank for record in records] == [0, 1]
    assert records == read_folder(folder / "00000000000000ff")
    assert vars(records[0].collectives[0]) == {**ONE, "subgroup": -1, "ranks": ()}
    assert main([str(folder)]) == 0
    assert json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert read_folder(folder) == records


def test_collectives_of_subgroups_and_connections_are_read(folder: Path) -> None:
    part = {"number": 1, "ranks": [1, 0], "collectives": [ONE]}
    connection = {"peer": 1, "messages": 3, "bytes": 4096, "seconds": 0.5}
    record_file.write(
        record_file.path_of("worker 0", 1),
        {"format": record_file.FORMAT, "epoch": 1, **content(subgroups=[part], connections=[connection])},
    )
    (found,) = read_folder(folder)
    whole, of_part = found.collectives
    assert (whole.subgroup, whole.last_peer) == (-1, 1)
    assert (of_part.subgroup, of_part.ranks, of_part.last_peer) == (1, (1, 0), 0)
    assert whole.is_of(5) and not of_part.is_of(5) and of_part.is_of(1)
    assert found.wires == (Sent(0, 1, 3, 4096, 0.5),)


def test_the_latest_group_is_read(folder: Path) -> None:
    for seconds, epoch in ((2000, 1), (1000, 2)):
        path = record_file.path_of("worker 0", epoch)
        record_file.write(path, {"format": record_file.FORMAT, "epoch": epoch, **content()})
        os.utime(path.parent, (seconds, seconds))
    assert read_folder(folder)[0].epoch == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense", "JSONDecodeError"),
        ("[1]", "TypeError"),
        ("{}", "KeyError('format')"),
        (json.dumps({"format": 99, **content()}), "reads 2"),
        (json.dumps({"format": record_file.FORMAT, "epoch": 1, **content(2)}), "its rank is 2"),
        (json.dumps({"format": record_file.FORMAT, "epoch": 1, **content(clock_offset_ns=[])}), "IndexError"),
        (
            json.dumps({"format": record_file.FORMAT, "epoch": 1, **content(monotonic_ns=float("inf"))}),
            "OverflowError",
        ),
        (json.dumps({"format": record_file.FORMAT, "epoch": 1, **content(collectives=[{}])}), "KeyError"),
    ],
)
def test_a_file_that_is_no_record_is_named(
    text: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "worker-0.json").write_text(text)
    assert main([str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "worker-0.json is not a record of collectives" in error
    assert reason in error


def test_files_of_two_groups_are_not_mixed(tmp_path: Path) -> None:
    for rank in (0, 1):
        text = json.dumps({"format": record_file.FORMAT, "epoch": rank, **content(rank)})
        (tmp_path / f"worker-{rank}.json").write_text(text)
    with pytest.raises(RecordError, match="of another group"):
        read_folder(tmp_path)


def test_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="has no records; set TF_STRATEGIES_RECORDS"):
        read_folder(tmp_path)


def test_a_folder_that_cannot_be_written_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(record_file.FOLDER_VARIABLE, str(tmp_path / "file"))
    writer = record_file.RecordWriter("worker 0")
    writer.begin(1, content())
    writer.finish()
    assert "the last collectives of worker 0 could not be written" in caplog.text


def test_without_a_thread_there_is_a_warning_and_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    writer = record_file.RecordWriter("worker 0")
    assert writer.begin(1, content()) is None
    writer.finish()
    assert "can't start new thread" in caplog.text


def test_a_disk_that_hangs_delays_nobody_and_an_older_record_replaces_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, write = threading.Event(), record_file.write
    monkeypatch.setattr(record_file, "write", lambda path, record: go.wait(10) and write(path, record))
    monkeypatch.setattr(record_file, "PATIENCE_SECONDS", 0.1)
    writer = record_file.RecordWriter("worker 0")
    paths = [writer.begin(1, content(failure=each)) for each in ("first", "second", "last")]
    writer.finish()
    assert not folder.exists()
    go.set()
    monkeypatch.setattr(record_file, "PATIENCE_SECONDS", 10.0)
    writer.finish()
    assert len(set(paths)) == 1
    assert read_folder(folder)[0].failure == "last"


def test_the_folder_of_temporary_files_is_private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(record_file.FOLDER_VARIABLE)
    monkeypatch.setattr(record_file.tempfile, "gettempdir", lambda: str(tmp_path))
    path = record_file.path_of("worker 0", 1)
    ours = tmp_path / f"tf_strategies-{os.getuid()}"
    assert path == ours / "0000000000000001" / "worker-0.json"
    record_file.write(path, {})
    assert ours.stat().st_mode & 0o777 == 0o700
    ours.rename(tmp_path / "elsewhere")
    ours.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="not a folder of this user"):
        record_file.write(path, {})
