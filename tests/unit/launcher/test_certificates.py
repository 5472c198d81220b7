"""Tests that tfs-certificates makes what read_tls takes, keeps no key of the authority, and overwrites nothing."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path
from typing import List

import pytest

from tf_strategies.launcher.certificates import main, temporary_certificates
from tf_strategies.tls import TLS_FOLDER, read_tls

pytestmark = pytest.mark.any_line
FILES = ["ca.crt", "task.crt", "task.key"]


def names(folder: Path) -> List[str]:
    return sorted(path.name for path in folder.iterdir())


def test_one_certificate_for_all_tasks(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = tmp_path / "new" / "certificates"
    assert main([str(folder)]) == 0
    assert f"set {TLS_FOLDER} on each task to the folder there" in capsys.readouterr().out
    assert names(folder) == FILES, "the key of the authority is not kept"
    assert names(folder.parent) == ["certificates"]
    for path in [folder, *folder.iterdir()]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    assert read_tls("tls", {TLS_FOLDER: str(folder)}) is not None


def test_a_certificate_for_each_task(tmp_path: Path) -> None:
    folder = tmp_path / "each"
    assert main([str(folder), "--tasks", "2", "--days", "3"]) == 0
    found = [read_tls("tls", {TLS_FOLDER: str(folder / each)}) for each in ("0", "1")]
    assert found[0].authority == found[1].authority
    assert found[0].key != found[1].key
    lasts = ["openssl", "x509", "-in", folder / "1" / "task.crt", "-noout", "-checkend"]
    assert subprocess.run([*lasts, str(2 * 86400)], capture_output=True).returncode == 0
    assert subprocess.run([*lasts, str(4 * 86400)], capture_output=True).returncode == 1


@pytest.mark.parametrize("arguments", [["--days", "0"], ["--tasks", "0"]])
def test_wrong_arguments_make_nothing(tmp_path: Path, arguments: list, capsys: pytest.CaptureFixture) -> None:
    assert main([str(tmp_path / "new"), *arguments]) == 1
    assert f"{arguments[0]} must be from 1 to" in capsys.readouterr().err
    assert names(tmp_path) == []


def test_what_exists_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main([str(tmp_path)]) == 1
    assert f"{tmp_path} exists, and is not overwritten" in capsys.readouterr().err


def test_a_missing_program_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([str(tmp_path / "new")]) == 1
    assert (
        "the program openssl is missing; install it (Debian: apt install openssl)" in capsys.readouterr().err
    )


def test_temporary_ones_are_removed() -> None:
    with temporary_certificates() as folder:
        assert read_tls("tls", {TLS_FOLDER: folder}) is not None
    assert not Path(folder).parent.exists()
