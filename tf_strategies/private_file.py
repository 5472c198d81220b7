"""Reads files that nobody else may read or change: the secret, and the key and certificates of TLS. Imports no TensorFlow."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tf_strategies.errors import ClusterConfigError

__all__ = ["read_private_file"]


def read_private_file(
    name: str, variable: str, remedy: str, *, most_bytes: int, others_may_read: bool = False
) -> bytes:
    """Returns the content of a file, up to a number of bytes.

    Its owner must be this user or root. Nobody else may read or write it. The group may read a file that belongs to root,
    because Kubernetes mounts secrets like this.

    Args:
        name: of the file.
        variable: the environment variable that names it or its folder, for messages.
        remedy: the command that makes such a file, for messages.
        most_bytes: of the content.
        others_may_read: whether the content is public, so that only changes must be kept out.

    Raises:
        ClusterConfigError: the file cannot be read, or others can read or change it.
    """
    try:
        with Path(name).open("rb") as file:
            _check_access(name, variable, remedy, os.fstat(file.fileno()), others_may_read)
            return file.read(most_bytes)
    except OSError as error:
        raise ClusterConfigError(
            f"{variable} names {name}, which cannot be read: {error.strerror}; {remedy}"
        ) from None


def _check_access(
    name: str, variable: str, remedy: str, found: os.stat_result, others_may_read: bool
) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ClusterConfigError(f"{name} ({variable}) is no regular file; {remedy}")
    if found.st_uid not in (0, os.geteuid()):
        raise ClusterConfigError(
            f"{name} ({variable}) belongs to user {found.st_uid}; it must belong to the user of this process, "
            f"{os.geteuid()}, or to root"
        )
    allowed = 0o740 if found.st_uid == 0 else 0o700
    if others_may_read:
        allowed = 0o755
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o777 & ~allowed:
        done = "change" if others_may_read else "read or change"
        raise ClusterConfigError(
            f"{name} ({variable}) has mode {mode:04o}, so that other users can {done} it; run: chmod 600 {name}"
        )
