"""The archive for a bug report holds what is needed, and nothing secret."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from tests.support.doctors import write_secret
from tests.support.processes import tf_config
from tf_strategies.doctor.collecting import safe_environment, without_secrets
from tf_strategies.doctor.main import main
from tf_strategies.secret import SECRET_FILE

pytestmark = pytest.mark.any_line

HIDDEN = {
    "TF_API_TOKEN": "t0k3n-of-the-job",
    "TFS_PASSWORD": "hunter2-of-the-job",
    "CUDA_SECRET": "s3cr3t-of-the-job",
    "KERAS_API_KEY": "k3y-of-the-job",
    "http_proxy": "http://me:pr0xy-of-the-job@proxy:80",
    "https_proxy": "me:pr0xy2-of-the-job@proxy:80",
    "TF_VAR_db_pass": "p4ss-of-the-job",
    "SLURM_DB_PWD": "p4ss2-of-the-job",
    "LDAP_BIND_PW": "p4ss3-of-the-job",
    "UNRELATED": "unrelated-of-the-job",
}


def test_the_archive_holds_facts_and_logs_and_nothing_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret"
    write_secret(secret)
    logs = tmp_path / "logs"
    logs.mkdir()
    digits = secret.read_text().strip()
    log = f"step 5\nsecret was {digits} and {digits.upper()}\nAuthorization: Bearer b3arer-of-the-job\n--token t0ken2-of-the-job"
    (logs / "worker-0.log").write_text(log)
    for name, value in HIDDEN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(SECRET_FILE, str(secret))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("TF_CONFIG", tf_config({"worker": ["127.0.0.1:1"]}, "worker", 0))
    path = tmp_path / "bug.tar.gz"
    secret.chmod(0o644)  # the job refuses it, and it is a secret all the same
    assert main(["--collect", str(path), "--log-dir", str(logs)]) == 0
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        parts = {each.name: archive.extractfile(each).read().decode() for each in archive.getmembers()}  # type: ignore[union-attr]
    assert {
        "bug/facts.json",
        "bug/packages.txt",
        "bug/TF_CONFIG.json",
        "bug/logs/worker-0.log",
        "bug/dmesg.txt",
    } <= set(parts)
    everything = "\n".join(parts.values())
    assert digits not in everything.lower()
    assert "of-the-job" not in everything
    assert "OMP_NUM_THREADS=3" in parts["bug/environment.txt"] and "step 5" in parts["bug/logs/worker-0.log"]
    assert "TFS_PASSWORD=(removed)" in parts["bug/environment.txt"]
    assert json.loads(parts["bug/facts.json"])["versions"]["tf_strategies"]
    assert "numpy==" in parts["bug/packages.txt"].lower()
    assert "read it before you send it" in capsys.readouterr().out


def test_a_folder_of_logs_must_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--collect", str(tmp_path / "x.tar.gz"), "--log-dir", str(tmp_path / "none")]) == 2
    assert "is no folder" in capsys.readouterr().err


def test_an_archive_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--collect", str(tmp_path / "none" / "x.tar.gz")]) == 1
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("db_password: hunter2", "db_password: (removed)"),
        ('{"token": "hunter2", "rank": 3}', '{"token": "(removed)", "rank": 3}'),
        ("--api-key hunter2 --rank 3", "--api-key (removed) --rank 3"),
        ("WANDB_API_KEY=hunter2", "WANDB_API_KEY=(removed)"),
        ("git clone https://me:hunter2@host/x", "git clone https://me:(removed)@host/x"),
        ("git clone https://me:hunt/er@2@host/x", "git clone https://me:(removed)@host/x"),
        ('{"password": "hunter 2, and more", "rank": 3}', '{"password": "(removed)", "rank": 3}'),
        ("password=hun,ter2 rank=3", "password=(removed) rank=3"),
        ("SLURM_DB_PWD=hunter2", "SLURM_DB_PWD=(removed)"),
        ("the loss is 0.5 at step=3", "the loss is 0.5 at step=3"),
    ],
)
def test_what_looks_secret_is_removed(text: str, kept: str) -> None:
    assert without_secrets(text) == kept


def test_the_environment_keeps_what_matters() -> None:
    found = safe_environment(
        {"TF_CONFIG": "{}", "AWS_SECRET_ACCESS_KEY": "x", "NCCL_DEBUG": "INFO", "HOME": "/root"}
    )
    assert found == {"TF_CONFIG": "{}", "NCCL_DEBUG": "INFO"}
