"""Docstrings of functions start with a verb in the third person: "Returns the rows of …". None starts as a question."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Iterator, Tuple

import pytest

from tests.support.processes import REPOSITORY

pytestmark = pytest.mark.any_line

PACKAGE = REPOSITORY / "tf_strategies"
QUESTIONS = {
    "all",
    "as",
    "how",
    "of",
    "what",
    "when",
    "where",
    "whether",
    "which",
    "while",
    "who",
    "whose",
    "why",
}
NO_VERBS = {"as", "bytes", "gradients", "is", "its", "rows", "seconds", "this", "values", "whatever"}


def functions(path: Path) -> Iterator[Tuple[str, str]]:
    """Yields the name and the docstring of each function of a file; properties are described like attributes."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            decorators = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
            text = ast.get_docstring(node)
            if text and not decorators & {"property", "cached_property"}:
                yield node.name, text


def test_no_docstring_starts_as_a_question() -> None:
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.Module, ast.ClassDef)):
                text = ast.get_docstring(node)
                if text and text.split()[0].lower() in QUESTIONS:
                    wrong.append(f"{path.relative_to(PACKAGE)}: {text.splitlines()[0]}")
    assert wrong == []


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_docstrings_start_with_a_verb(path: Path) -> None:
    wrong = []
    for name, text in functions(path):
        first = text.split()[0].rstrip(".,:;")
        if not (first[0].isupper() and first.endswith("s") and first.lower() not in NO_VERBS):
            wrong.append(f"{name}: {text.splitlines()[0]}")
    assert wrong == []
