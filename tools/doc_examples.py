"""Lets the documentation show the example of a docstring as code.

The parser of docstrings knows the section "Examples", and would show "Example", which the docstrings use, as quoted text.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


class Examples(griffe.Extension):  # type: ignore[misc]  # mypy does not see griffe
    """Renames the section before the docstring is parsed."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Changes the docstring of an object that has been loaded."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.M)
