"""Reads what tf_strategies has logged. TensorFlow logs, too, also while it collects objects of an earlier test."""

from __future__ import annotations

from typing import List

import pytest

__all__ = ["our_messages"]


def our_messages(caplog: pytest.LogCaptureFixture) -> List[str]:
    """Returns the messages of the logger of tf_strategies, in order."""
    return [record.getMessage() for record in caplog.records if record.name == "tf_strategies"]
