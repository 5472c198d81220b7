"""Certificates that are wrong in one way, for tests of TLS."""

from __future__ import annotations

from pathlib import Path

from tf_strategies.launcher import certificates

__all__ = ["expired", "make", "of_another_name"]


def make(folder: Path) -> str:
    """Makes certificates that are right. Returns the folder, for TF_STRATEGIES_TLS."""
    certificates.make_certificates(folder)
    return str(folder)


def expired(folder: Path) -> str:
    """Makes a certificate that was valid until yesterday, by an authority that is valid still."""
    return _signed(folder, days=-1)


def of_another_name(folder: Path, monkeypatch) -> str:
    """Makes a certificate for another name than that of all clusters."""
    with monkeypatch.context() as changed:
        changed.setattr(certificates, "CLUSTER_NAME", "example.org")
        return _signed(folder, days=2)


def _signed(folder: Path, days: int) -> str:
    authority = folder / "authority"
    authority.mkdir(parents=True)
    certificates._make_authority(authority, 2)
    certificates._make_task(authority, folder, days)
    return str(folder)
