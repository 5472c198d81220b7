"""Addresses as TF_CONFIG spells them: "host:port", "10.0.0.3:2222", "[::1]:2222"."""

from __future__ import annotations

import ipaddress
import re

_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?\Z")
_PORT = re.compile(r"[0-9]{1,5}\Z")
_MAX_HOST = 253


def split_address(address: str) -> tuple[str, int]:
    """Splits an address into host and port. An IPv6 host loses its brackets and takes its shortest form.

    Raises:
        ValueError: the address is malformed. The message says how.
    """
    if "://" in address:
        raise ValueError("it must have no scheme")
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        raise ValueError("it has no port")
    if not _PORT.match(port):
        raise ValueError("its port is not a number")
    if not 1 <= int(port) <= 65535:
        raise ValueError("its port is not between 1 and 65535")
    return _check_host(host), int(port)


def join_address(host: str, port: int) -> str:
    """Joins a host and a port, as the inverse of `split_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_unspecified(address: str) -> bool:
    """Returns True if an address, "host:port", stands for all interfaces of a host, and so names no host."""
    try:
        return ipaddress.ip_address(split_address(address)[0]).is_unspecified
    except ValueError:
        return False


def is_loopback(address: str) -> bool:
    """Returns True if an address, "host:port", is that of a loopback interface, which no other host reaches."""
    host = split_address(address)[0]
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_host(host: str) -> str:
    if not host:
        raise ValueError("it has no host")
    if host.startswith("[") and host.endswith("]"):
        try:
            return str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError:
            raise ValueError("what stands in brackets is not an IPv6 address") from None
    if ":" in host:
        raise ValueError('an IPv6 address must stand in brackets, as in "[::1]:2222"')
    if len(host) > _MAX_HOST or not _HOST.match(host):
        raise ValueError("its host is neither a name nor an address")
    return host
