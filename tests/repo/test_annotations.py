"""Annotations say what a value is: none says `Any`, and none says so by a bare `Callable` or `List`.

A value that may be anything has a name that says what for, in tf_strategies/types.py, keras/types.py or keras/fit_types.py.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Iterator, Tuple

import pytest

from tests.support.processes import REPOSITORY

pytestmark = pytest.mark.any_line

PACKAGE = REPOSITORY / "tf_strategies"
# Aliases of Any may be made here only.
NAMES = ("keras/fit_types.py", "keras/types.py", "types.py")
# How many annotations of a file say Any. These numbers may only shrink.
EXEMPT = {
    "launcher/agent.py": 2,
}
# Without [...] they are of Any.
GENERICS = {"Callable", "Dict", "Iterable", "Iterator", "List", "Mapping", "Sequence", "Set", "Tuple"}


def annotations(tree: ast.AST) -> Iterator[Tuple[int, ast.expr]]:
    """Yields the line and the annotation of each parameter, result and attribute.

    Left out are `*args` and `**kwargs`, which are passed on as they come, results of `__getattr__`, and local variables.
    """
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            yield from ((each.lineno, each.annotation) for each in arguments if each.annotation is not None)
            if node.returns is not None and node.name != "__getattr__":
                yield node.lineno, node.returns
    for node in _outside_of_functions(tree):
        if isinstance(node, ast.AnnAssign):
            yield node.lineno, node.annotation
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
            yield node.lineno, node.annotation


def _outside_of_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from _outside_of_functions(child)


def says_any(node: ast.AST) -> bool:
    """Whether Any is in an annotation, or a generic type without its arguments; np.ndarray[Any, ...] is NumPy's way."""
    if isinstance(node, ast.Subscript):
        if isinstance(node.value, ast.Attribute) and node.value.attr in ("ndarray", "dtype", "number"):
            return False
        return says_any(node.slice)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return says_any(ast.parse(node.value, mode="eval").body)
    if isinstance(node, ast.Name):
        return node.id == "Any" or node.id in GENERICS
    return any(says_any(child) for child in ast.iter_child_nodes(node))


def lines_with_any(source: str) -> list[int]:
    return sorted(line for line, annotation in annotations(ast.parse(source)) if says_any(annotation))


def aliases_of_any(source: str) -> list[int]:
    """The lines on which a module or class gives Any, or a type of Any, a name."""
    return [
        node.lineno
        for node in _outside_of_functions(ast.parse(source))
        if isinstance(node, ast.Assign)
        and any(isinstance(inner, ast.Name) and inner.id == "Any" for inner in ast.walk(node.value))
    ]


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=name_of)
def test_annotations_do_not_say_any(path):
    found = lines_with_any(path.read_text())
    allowed = EXEMPT.get(name_of(path), 0)
    assert len(found) <= allowed, (
        f"name the types in lines {found}; see tf_strategies/types.py, keras/types.py and keras/fit_types.py"
    )
    assert len(found) == allowed, f"lower the number of {name_of(path)} in EXEMPT to {len(found)}"


def test_exemptions_are_sorted_and_of_files_that_exist():
    assert list(EXEMPT) == sorted(EXEMPT)
    assert [name for name in EXEMPT if not (PACKAGE / name).exists()] == []


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=name_of)
def test_values_that_may_be_anything_have_one_name(path):
    assert name_of(path) in NAMES or aliases_of_any(path.read_text()) == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("def f(x: Any): pass", [1]),
        ("def f(x) -> Any: pass", [1]),
        ("def f(x: Optional[Any] = None): pass", [1]),
        ("def f(*, x: Dict[str, Any]): pass", [1]),
        ("def f(x: Callable[..., Any]): pass", [1]),
        ("def f(x: 'Any'): pass", [1]),
        ("def f(x: Callable): pass", [1]),
        ("def f(x: Sequence[Tuple]): pass", [1]),
        ("class C:\n    x: Any", [2]),
        ("class C:\n    def f(self):\n        self.x: List[Any] = []", [3]),
        ("x: Any = 1", [1]),
        ("if True:\n    x: Any = 1", [2]),
        ("def f(self):\n    def g(x: Any): pass", [2]),
        ("def f(*args: Any, **kwargs: Any) -> None: pass", []),
        ("def __getattr__(name: str) -> Any: pass", []),
        ("def f(x: np.dtype[Any]) -> np.ndarray[Any, Any]: pass", []),
        ("def f():\n    x: Any = 1", []),
        ("def f(x: Sequence[Tuple[int, str]]) -> Callable[..., int]: pass", []),
    ],
)
def test_the_rule_can_say_no(source, lines):
    assert lines_with_any(source) == lines


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("Model = Any", [1]),
        ("Pair = Tuple[Any, int]", [1]),
        ("Pair = Tuple[str, int]", []),
        ("def f():\n    kind = Any", []),
    ],
)
def test_the_rule_for_aliases_can_say_no(source, lines):
    assert aliases_of_any(source) == lines
