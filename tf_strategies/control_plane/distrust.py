"""Says when a member gives up because it and rank 0 disagree about the secret or TLS."""

from __future__ import annotations

from typing import NamedTuple

from tf_strategies.errors import BootstrapError
from tf_strategies.secret import SECRET_FILE
from tf_strategies.tls import TLS_FOLDER

__all__ = ["REFUSED_SECONDS", "DistrustError", "Refusal"]

REFUSED_SECONDS = 10.0  # an earlier job with another secret or certificate may still be ending at the address
_REMEDIES = {
    SECRET_FILE: f"give all tasks the same file as {SECRET_FILE}",
    TLS_FOLDER: f"set {TLS_FOLDER} on all tasks, to certificates of one authority, or on none",
}


class DistrustError(BootstrapError):
    """Reports that this task and rank 0 disagree about the secret or TLS.

    Attributes:
        variable: the environment variable to correct.
    """

    def __init__(self, variable: str, mine: str, first: str, reason: str) -> None:
        super().__init__(f"{mine} does not trust {first}: {reason}; {_REMEDIES[variable]}")
        self.variable = variable


class Refusal(NamedTuple):
    """The last disagreement about the secret or TLS: the variable, the reason, and how long the member had waited then."""

    variable: str
    reason: str
    waited: float

    def counts(self, waited: float) -> bool:
        """Returns whether it still tells why the member does not join.

        Rank 0 may have ended since, because another member has told it of the same disagreement about TLS.
        """
        return waited == self.waited or (
            self.variable == TLS_FOLDER and waited - self.waited < REFUSED_SECONDS
        )
