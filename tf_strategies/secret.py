"""The secret that all processes of a cluster share, from the file that TF_STRATEGIES_SECRET_FILE names. Imports no TensorFlow."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import tempfile
from pathlib import Path
from typing import Iterable, Iterator, Mapping

from tf_strategies.addresses import is_loopback
from tf_strategies.errors import ClusterConfigError
from tf_strategies.private_file import read_private_file

__all__ = [
    "SECRET_FILE",
    "new_secret",
    "read_secret",
    "temporary_secret_file",
    "warn_of_servers",
    "warn_once",
    "warn_without_secret",
]

SECRET_FILE = "TF_STRATEGIES_SECRET_FILE"  # the environment variable
_SECRET_BYTES = 32
_MOST_FILE_BYTES = 4096
_WRITE_ONE = f"write one with: umask 077; openssl rand -hex {_SECRET_BYTES} > FILE"
_HEXADECIMAL = re.compile(rb"\s*[0-9A-Fa-f]{%d}\s*" % (2 * _SECRET_BYTES))

_log = logging.getLogger("tf_strategies")
_given: set[str] = set()  # the warnings of this process


def read_secret(environ: Mapping[str, str] = os.environ) -> bytes:
    """Returns the secret of the cluster: 32 bytes, or b"" if the environment names no file.

    The file holds 64 hexadecimal digits. Its owner must be this user or root. Nobody else may read or write it. The
    group may read a file that belongs to root, because Kubernetes mounts secrets like this.

    Args:
        environ: where TF_STRATEGIES_SECRET_FILE is looked up.

    Raises:
        ClusterConfigError: the file cannot be read, others can read or write it, or it holds no secret.
    """
    name = environ.get(SECRET_FILE, "")
    if not name:
        return b""
    content = read_private_file(name, SECRET_FILE, _WRITE_ONE, most_bytes=_MOST_FILE_BYTES)
    if not _HEXADECIMAL.fullmatch(content):
        raise ClusterConfigError(
            f"{name} ({SECRET_FILE}) must hold {2 * _SECRET_BYTES} hexadecimal digits; {_WRITE_ONE}"
        )
    return bytes.fromhex(content.decode("ascii"))


def new_secret() -> str:
    """Returns a new secret in hexadecimal digits."""
    return secrets.token_hex(_SECRET_BYTES)


@contextlib.contextmanager
def temporary_secret_file(secret: str | None = None) -> Iterator[str]:
    """Writes a secret to a file that only this user can read, and gives its path. The file is removed at the end.

    Args:
        secret: the hexadecimal digits; None makes a new secret.
    """
    with tempfile.TemporaryDirectory(prefix="tf_strategies-") as folder:
        path = Path(folder, "secret")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write((new_secret() if secret is None else secret) + "\n")
        yield str(path)


def warn_without_secret(addresses: Iterable[str]) -> None:
    """Logs a warning, once in a process, that a job has no secret, if other hosts can reach one of its addresses.

    Args:
        addresses: "host:port" of each task.
    """
    warn_once(
        addresses,
        "no secret is set, and other hosts can reach %s: whoever reaches the ports of this job can join it or end it; set "
        f"{SECRET_FILE} on all tasks (docs/security.md)",
    )


def warn_of_servers(addresses: Iterable[str]) -> None:
    """Logs a warning, once in a process, that parameter servers without a secret trust everybody who can reach them.

    Args:
        addresses: "host:port" of each task.
    """
    warn_once(
        addresses,
        "no secret is set, and other hosts can reach %s: TensorFlow's servers there run any graph for whoever asks; set "
        f"{SECRET_FILE} on all tasks (docs/security.md)",
    )


def warn_once(addresses: Iterable[str], warning: str) -> None:
    """Logs a warning, once in a process, if other hosts can reach an address.

    Args:
        addresses: "host:port" of each task.
        warning: has a %s for the first address that is not a loopback address.
    """
    reachable = next((each for each in addresses if not is_loopback(each)), None)
    if reachable is not None and warning not in _given:
        _given.add(warning)
        _log.warning(warning, reachable)
