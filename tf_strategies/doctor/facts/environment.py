"""Reads what the environment says about proxies, the secret and TLS."""

from __future__ import annotations

import hashlib
import re
from typing import Dict, Mapping, Tuple

from tf_strategies.errors import ClusterConfigError
from tf_strategies.secret import read_secret
from tf_strategies.tls import read_tls

__all__ = ["proxies", "secret_of", "tls_of", "without_login"]

# In the order in which gRPC looks for one.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy")


def proxies(environ: Mapping[str, str]) -> Dict[str, str]:
    """Returns the variables that name a proxy of gRPC, or what it is not used for. Passwords are removed."""
    return {name: without_login(environ[name])[:1000] for name in _PROXIES if environ.get(name)}


def without_login(address: str) -> str:
    """Returns the address of a proxy without its user and password.

    Example:
        >>> without_login("http://me:p@ss@proxy:80"), without_login("me:pw@proxy:80")
        ('http://proxy:80', 'proxy:80')
    """
    return re.sub(r"^(\w[\w+.-]*://)?.*@", r"\1", address)


def secret_of(environ: Mapping[str, str]) -> Tuple[bytes, str]:
    """Returns the secret, and why it cannot be used; b"" and "" if there is none."""
    try:
        return read_secret(environ), ""
    except ClusterConfigError as error:
        return b"", str(error)[:1000]


def tls_of(environ: Mapping[str, str]) -> Tuple[str, str]:
    """Returns a fingerprint of the authority of TLS, and why the certificate cannot be used; "" and "" without TLS."""
    try:
        files = read_tls(environ=environ)
    except ClusterConfigError as error:
        return "", str(error)[:1000]
    return ("", "") if files is None else (hashlib.sha256(files.authority.strip()).hexdigest()[:16], "")
