"""The command line of tfs-certificates: makes an authority and certificates for the tasks of a cluster.

The program openssl does it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterator, Sequence

from tf_strategies.tls import CLUSTER_NAME, TLS_FOLDER

__all__ = ["main", "make_certificates", "temporary_certificates"]

_DESCRIPTION = f"""Makes an authority and a certificate that it has signed: FOLDER/ca.crt, task.crt and task.key, for
{TLS_FOLDER}. The key of the authority is not kept: nobody can sign more. To replace a certificate, make a new folder for
all tasks."""
_NEW_KEY = ("req", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
_COMMAND_SECONDS = 60
_MOST_TASKS = 10_000


def main(argv: Sequence[str] | None = None) -> int:
    """Makes certificates.

    Args:
        argv: the arguments; by default those of this process.

    Returns:
        0, or 1 if they could not be made.
    """
    parser = argparse.ArgumentParser(prog="tfs-certificates", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("folder", metavar="FOLDER", help="a new folder")
    parser.add_argument(
        "--days", type=int, default=365, metavar="N", help="how long they are valid (default 365)"
    )
    parser.add_argument(
        "--tasks",
        type=int,
        metavar="N",
        help="a certificate for each of N tasks, in FOLDER/0, FOLDER/1 … (default: one for all)",
    )
    arguments = parser.parse_args(argv)
    try:
        make_certificates(Path(arguments.folder), days=arguments.days, tasks=arguments.tasks)
    except (ValueError, OSError) as error:
        print(f"tfs-certificates: error: {error}", file=sys.stderr)
        return 1
    what = arguments.folder if arguments.tasks is None else f"{arguments.folder}/0, {arguments.folder}/1 …"
    print(
        f"made {arguments.folder}; copy {what} to the hosts, and set {TLS_FOLDER} on each task to the folder there"
    )
    return 0


def make_certificates(folder: Path, *, days: int = 365, tasks: int | None = None) -> None:
    """Makes a folder with ca.crt, task.crt and task.key that only this user can read.

    Args:
        folder: must not exist.
        days: that the certificates are valid, from now.
        tasks: the number of folders `folder`/0, `folder`/1 and so on, each with a certificate of its own; None for one
            certificate in the folder itself.

    Raises:
        ValueError: an argument is wrong, the folder exists, or the program openssl is missing or fails.
    """
    if shutil.which("openssl") is None:
        raise ValueError("the program openssl is missing; install it (Debian: apt install openssl)")
    if folder.exists() or folder.is_symlink():
        raise ValueError(f"{folder} exists, and is not overwritten; name another folder, or remove it")
    if not 1 <= days <= 36_500:
        raise ValueError(f"--days must be from 1 to 36500; got {days}")
    if tasks is not None and not 1 <= tasks <= _MOST_TASKS:
        raise ValueError(f"--tasks must be from 1 to {_MOST_TASKS}; got {tasks}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".certificates-", dir=folder.parent) as work:
        made, authority = Path(work, "made"), Path(work, "authority")
        authority.mkdir(mode=0o700)
        made.mkdir(mode=0o700)
        _make_authority(authority, days)
        for target in [made] if tasks is None else [made / str(each) for each in range(tasks)]:
            target.mkdir(mode=0o700, exist_ok=True)
            _make_task(authority, target, days)
        made.rename(folder)


@contextlib.contextmanager
def temporary_certificates() -> Iterator[str]:
    """Makes certificates for the processes of this machine, and gives the folder, which is removed at the end.

    Raises:
        ValueError: the program openssl is missing or fails.
    """
    with tempfile.TemporaryDirectory(prefix="tf_strategies-") as work:
        folder = Path(work, "certificates")
        make_certificates(folder, days=30)
        yield str(folder)


def _make_authority(folder: Path, days: int) -> None:
    _openssl(folder, *_NEW_KEY, "-x509", "-days", str(days), "-subj", "/CN=tf_strategies authority",
             "-addext", "basicConstraints=critical,CA:TRUE,pathlen:0", "-addext", "keyUsage=critical,keyCertSign",
             "-keyout", "ca.key", "-out", "ca.crt")  # fmt: skip


def _make_task(authority: Path, folder: Path, days: int) -> None:
    _openssl(
        authority, *_NEW_KEY, "-subj", "/CN=tf_strategies task", "-keyout", "task.key", "-out", "request"
    )
    (authority / "extensions").write_text(
        f"subjectAltName=DNS:{CLUSTER_NAME}\nextendedKeyUsage=serverAuth,clientAuth\nkeyUsage=critical,digitalSignature\n"
        "basicConstraints=critical,CA:FALSE\n"
    )
    _openssl(authority, "x509", "-req", "-in", "request", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
             "-days", str(days), "-extfile", "extensions", "-out", "task.crt")  # fmt: skip
    for name in ("ca.crt", "task.crt", "task.key"):
        with os.fdopen(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write((authority / name).read_bytes())


def _openssl(folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        ["openssl", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_COMMAND_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise ValueError(f"openssl {arguments[0]} failed: {' '.join(done.stderr.split())[-300:]}")


if __name__ == "__main__":
    sys.exit(main())
