"""Texts of other code, such as messages of errors, on their way into C functions and protocols."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.repo.layers import ROOT
from tf_strategies.texts import described, printable, utf8

_NOT_UTF8 = b"caf\xe9.png".decode("utf-8", "surrogateescape")


class _NoTextError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@given(st.text(st.characters(), max_size=50))
def test_any_text_is_encoded_and_what_utf8_has_stays(text: str) -> None:
    encoded = utf8(text)
    assert printable(text) == encoded.decode("utf-8")
    try:
        assert encoded == text.encode("utf-8")
    except UnicodeEncodeError:
        assert b"\\ud" in encoded


def test_a_file_name_that_is_not_utf8_is_shown_with_its_escape() -> None:
    error = FileNotFoundError(2, "No such file or directory", _NOT_UTF8)
    assert described(error, 200).startswith("FileNotFoundError: [Errno 2] No such file")
    assert "caf\\udce9.png" in described(error, 200)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (None, ""),
        (KeyError(), "KeyError"),
        (ValueError("two\n  lines"), "ValueError: two lines"),
        (ValueError("x" * 99), f"ValueError: {'x' * 20}"),
        (_NoTextError(), "_NoTextError: its text cannot be shown: RuntimeError"),
    ],
)
def test_an_error_is_described_on_one_line(error: BaseException | None, text: str) -> None:
    assert described(error, 20) == text


def test_texts_for_c_functions_are_encoded_by_what_cannot_fail() -> None:
    for path in (ROOT / "tf_strategies" / "native").glob("*core.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)]
        assert [node.lineno for node in calls if node.attr == "encode"] == [], path
