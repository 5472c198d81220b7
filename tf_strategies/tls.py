"""TLS between workers: the certificate of this task, from the folder that TF_STRATEGIES_TLS names. Imports no TensorFlow.

The folder holds `ca.crt` (the authority of the cluster), `task.crt` and `task.key`, all PEM. Every certificate has the same
alternative name, `CLUSTER_NAME`, so that it fits any address.
"""

from __future__ import annotations

import dataclasses
import os
import ssl
from pathlib import Path
from typing import Mapping

from tf_strategies.errors import ClusterConfigError
from tf_strategies.private_file import read_private_file

__all__ = [
    "CLUSTER_NAME",
    "TLS_FOLDER",
    "TlsFiles",
    "client_context",
    "read_tls",
    "server_context",
]

TLS_FOLDER = "TF_STRATEGIES_TLS"  # the environment variable
CLUSTER_NAME = "tf-strategies"
_MOST_FILE_BYTES = 1 << 20
_MAKE_THEM = "make certificates with: tfs-certificates FOLDER (docs/security.md)"
_MOST_FLIGHTS = 8


@dataclasses.dataclass(frozen=True)
class TlsFiles:
    """The files of a task, as they were read.

    Attributes:
        folder: where they are, as an absolute path.
        authority, certificate, key: PEM.
    """

    folder: str
    authority: bytes
    certificate: bytes
    key: bytes = dataclasses.field(repr=False)


def read_tls(security: str = "auto", environ: Mapping[str, str] = os.environ) -> TlsFiles | None:
    """Returns the files of this task, or None if the environment names no folder.

    Args:
        security: as in CommunicationOptions. "tls" requires the folder.
        environ: where TF_STRATEGIES_TLS is looked up.

    Raises:
        ClusterConfigError: the folder is required and not set; a file cannot be read; others can read the key or change a file;
            or the other tasks would refuse the certificate, because it has expired, for example.
    """
    name = environ.get(TLS_FOLDER, "")
    if not name:
        if security == "tls":
            raise ClusterConfigError(
                f"security='tls' needs the certificate of this task, and {TLS_FOLDER} is not set; {_MAKE_THEM}, and set "
                f"{TLS_FOLDER} to the folder on each task"
            )
        return None
    folder = Path(name).absolute()

    def read(file: str, others_may_read: bool) -> bytes:
        return read_private_file(
            str(folder / file),
            TLS_FOLDER,
            _MAKE_THEM,
            most_bytes=_MOST_FILE_BYTES,
            others_may_read=others_may_read,
        )

    files = TlsFiles(str(folder), read("ca.crt", True), read("task.crt", True), read("task.key", False))
    _check_that_others_accept(files)
    return files


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Returns the context of a client that trusts the authority alone, and shows the certificate of this task.

    Raises:
        OSError: the files do not fit one another, or are not PEM.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load(context, files)
    return context


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Returns the context of a server that demands a certificate of the authority, and shows that of this task.

    Raises:
        OSError: the files do not fit one another, or are not PEM.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    _load(context, files)
    return context


def _load(context: ssl.SSLContext, files: TlsFiles) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=files.authority.decode("ascii"))
    folder = Path(files.folder)
    context.load_cert_chain(folder / "task.crt", folder / "task.key", password=lambda: b"")


def _check_that_others_accept(files: TlsFiles) -> None:
    """Lets the task meet itself, in memory, which shows what other tasks would see."""
    try:
        _meet(client_context(files), server_context(files))
    except ssl.SSLCertVerificationError as error:
        reason = error.verify_message.rstrip(".")
        raise ClusterConfigError(
            f"the other tasks would refuse {files.folder}/task.crt ({TLS_FOLDER}): {reason}; {_MAKE_THEM}"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise ClusterConfigError(
            f"the files ca.crt, task.crt and task.key of {files.folder} ({TLS_FOLDER}) cannot be used together: {reason}; "
            f"{_MAKE_THEM}"
        ) from None


def _meet(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=CLUSTER_NAME),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(_MOST_FLIGHTS):
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue
        if not ends:
            return
    raise ValueError("the handshake does not end")
