"""Encodes and shortens texts of other code, such as error messages, without ever failing."""

from __future__ import annotations

from typing import Optional

__all__ = ["described", "printable", "utf8"]


def utf8(text: str) -> bytes:
    """Returns the text in UTF-8; a character that UTF-8 does not have is written as its escape.

    File names that are not valid UTF-8 have such characters: Python decodes them with `surrogateescape`.

    Example:
        >>> utf8("caf\\udce9.png")
        b'caf\\\\udce9.png'
    """
    return text.encode("utf-8", errors="backslashreplace")


def printable(text: str) -> str:
    """Returns the text with the same escapes, so that every log and every protocol accepts it."""
    return utf8(text).decode("utf-8")


def described(error: Optional[BaseException], length: int) -> str:
    """Returns the type and the first characters of an error, on one line; "" for None.

    Args:
        error: any exception, also one whose `__str__` raises.
        length: how many characters of its own text are kept.
    """
    if error is None:
        return ""
    try:
        text = " ".join(printable(str(error)).split())[:length]
    except Exception as second:
        text = f"its text cannot be shown: {type(second).__name__}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
