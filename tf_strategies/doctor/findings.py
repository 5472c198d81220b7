"""Defines a finding, and lists the codes that a finding can have."""

from __future__ import annotations

import dataclasses
import enum

__all__ = ["CODES", "Finding", "Severity"]


class Severity(enum.IntEnum):
    """Says how bad a finding is."""

    NOTE = 0
    WARNING = 1
    ERROR = 2

    @property
    def word(self) -> str:
        return self.name.lower()


# docs/doctor.md explains each code and its remedy; a test compares.
CODES = (
    "tf_config",
    "cluster_differs",
    "duplicate_task",
    "wrong_task",
    "not_started",
    "not_reached",
    "name_unresolved",
    "name_is_loopback",
    "name_differs",
    "dns_slow",
    "port_taken",
    "address_not_here",
    "other_program",
    "control_port_blocked",
    "data_port_blocked",
    "data_port_unavailable",
    "mtu_black_hole",
    "mtu_differs",
    "secret_differs",
    "secret_unusable",
    "no_secret",
    "tls_unusable",
    "tls_differs",
    "clock_skew",
    "versions_differ",
    "tensorflow_missing",
    "library_broken",
    "shm_unwritable",
    "shm_small",
    "memory_of_others_forbidden",
    "open_files_few",
    "locked_memory_low",
    "processes_few",
    "cores_pinned",
    "cores_few",
    "threads_many",
    "proxy",
    "gpu_driver",
    "gpus_differ",
    "pair_slow",
    "latency_high",
    "not_measured",
    "report_missing",
)


@dataclasses.dataclass(frozen=True)
class Finding:
    """Says what is wrong, where, and what to do.

    Attributes:
        code: one of `CODES`.
        severity: of the finding.
        where: the task or tasks, with their addresses.
        text: what was found.
        remedy: what to do.
    """

    code: str
    severity: Severity
    where: str
    text: str
    remedy: str

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"{self.code!r} is no code of a finding")

    def __str__(self) -> str:
        return f"{self.severity.word} {self.code}: {self.where}: {self.text}; {self.remedy}"
