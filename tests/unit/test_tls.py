"""Tests that certificates are read only if nobody else can change them, and that one the others would refuse is named at once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Dict

import pytest

from tests.support import certificates
from tf_strategies.errors import ClusterConfigError
from tf_strategies.tls import TLS_FOLDER, read_tls

pytestmark = pytest.mark.any_line


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(certificates.make(tmp_path_factory.mktemp("tls") / "made"))


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy that the test may spoil."""
    return Path(shutil.copytree(made, tmp_path / "copy"))


def environ(folder: object) -> Dict[str, str]:
    return {TLS_FOLDER: str(folder)}


def test_no_folder_is_no_tls() -> None:
    assert read_tls("auto", {}) is None
    assert read_tls("auto", {TLS_FOLDER: ""}) is None


def test_tls_that_is_required_names_the_variable_and_the_remedy() -> None:
    with pytest.raises(
        ClusterConfigError, match=rf"{TLS_FOLDER} is not set; make certificates with: tfs-certificates FOLDER"
    ):
        read_tls("tls", {})


@pytest.mark.parametrize("security", ["auto", "tls"])
def test_the_files_of_a_folder_are_read(folder: Path, security: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    found = read_tls(security, environ(folder.name))
    assert found is not None
    assert found.folder == str(folder), "the core reads it whatever the working directory is then"
    assert (found.authority, found.certificate, found.key) == tuple(
        (folder / name).read_bytes() for name in ("ca.crt", "task.crt", "task.key")
    )
    assert "PRIVATE" not in repr(found)


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o666])
def test_a_key_that_others_can_read_is_refused(folder: Path, mode: int) -> None:
    (folder / "task.key").chmod(mode)
    with pytest.raises(
        ClusterConfigError,
        match=rf"task.key \({TLS_FOLDER}\) has mode {mode:04o}, so that other users can read or change it",
    ):
        read_tls("auto", environ(folder))


@pytest.mark.parametrize("name", ["ca.crt", "task.crt"])
def test_certificates_may_be_read_by_others_and_not_changed(folder: Path, name: str) -> None:
    (folder / name).chmod(0o644)
    assert read_tls("auto", environ(folder)) is not None
    (folder / name).chmod(0o664)
    with pytest.raises(ClusterConfigError, match=rf"{name} .* other users can change it"):
        read_tls("auto", environ(folder))


@pytest.mark.parametrize("name", ["ca.crt", "task.crt", "task.key"])
def test_a_file_that_is_missing_or_no_pem_is_named(folder: Path, name: str) -> None:
    (folder / name).write_text("no PEM")
    with pytest.raises(ClusterConfigError, match=rf"of {folder} \({TLS_FOLDER}\) cannot be used together"):
        read_tls("auto", environ(folder))
    (folder / name).unlink()
    with pytest.raises(
        ClusterConfigError, match=rf"{TLS_FOLDER} names {folder}/{name}, which cannot be read"
    ):
        read_tls("auto", environ(folder))


def test_an_expired_certificate_is_named_as_such(tmp_path: Path) -> None:
    expired = certificates.expired(tmp_path / "expired")
    with pytest.raises(
        ClusterConfigError,
        match=rf"would refuse {expired}/task.crt \({TLS_FOLDER}\): certificate has expired; make",
    ):
        read_tls("auto", environ(expired))


def test_a_certificate_of_another_name_is_named_as_such(tmp_path: Path, monkeypatch) -> None:
    other = certificates.of_another_name(tmp_path / "other", monkeypatch)
    with pytest.raises(ClusterConfigError, match=r"[Hh]ostname mismatch.*'tf-strategies'"):
        read_tls("auto", environ(other))


def test_files_of_different_authorities_are_refused(folder: Path, tmp_path: Path) -> None:
    other = Path(certificates.make(tmp_path / "other"))
    shutil.copy(other / "task.key", folder)
    with pytest.raises(ClusterConfigError, match="cannot be used together: KEY_VALUES_MISMATCH"):
        read_tls("auto", environ(folder))
    shutil.copy(other / "task.crt", folder)
    with pytest.raises(ClusterConfigError, match=r"unable to get local issuer certificate|self.signed"):
        read_tls("auto", environ(folder))


def test_a_key_with_a_password_asks_nobody(folder: Path) -> None:
    key = folder / "task.key"
    subprocess.run(
        ["openssl", "ec", "-in", key, "-out", key, "-aes128", "-passout", "pass:x"],
        check=True,
        capture_output=True,
    )
    key.chmod(0o600)
    with pytest.raises(ClusterConfigError, match="cannot be used together"):
        read_tls("auto", environ(folder))
