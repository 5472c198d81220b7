"""What is installed in Keras is the patch table, all of it or nothing."""

from __future__ import annotations

import ast
import types
from pathlib import Path
from typing import Iterator

import pytest
import tensorflow as tf

from tests.repo import layers
from tf_strategies.keras import bridge
from tf_strategies.keras.installation import install_all
from tf_strategies.keras.loaded import loaded_kerases
from tf_strategies.keras.patches import OF_TENSORFLOW, PATCHES, READS, Patch, find_owner, patches_of

pytestmark = [pytest.mark.keras, pytest.mark.matrix, pytest.mark.smoke]
VERSIONS = ("2.15", "2.21", "3.3", "3.8", "3.15")
MADE_BY_PYTHON = {"__module__", "__dict__", "__weakref__", "__doc__"}


def test_each_name_is_replaced_once() -> None:
    for version in VERSIONS:
        names = [(each.owner, each.name) for each in patches_of(version)]
        assert len(set(names)) == len(names)
    assert all(each.reason for each in PATCHES)


def test_what_is_installed_is_the_table() -> None:
    assert tf.keras.Model  # loads the Keras that tf.keras is
    table = [
        (find_owner(used, each.owner), each.name)
        for _, used in loaded_kerases()
        for each in patches_of(used.__version__)
    ]
    owners = {id(owner): owner for owner, _ in table}
    before = {key: dict(vars(owner)) for key, owner in owners.items()}
    bridge.install()
    changed = {
        (id(owner), name)
        for key, owner in owners.items()
        for name in vars(owner)
        if before[key].get(name) is not vars(owner)[name]
    }
    expected = {(id(owner), name) for owner, name in table}
    assert changed == expected or not changed, (
        "not changed if another test of this process has installed the bridge"
    )
    for owner, name in table:
        assert name in vars(owner)


class Base:
    def inherited(self) -> str:
        return "base"


class Owner(Base):
    def own(self) -> str:
        return "own"


def package() -> types.ModuleType:
    made = types.ModuleType("made")
    made.Owner = type("Owner", (Owner,), {"own": lambda self: "own"})
    return made


def replaced(original: object, package: object) -> object:
    return lambda self: "replaced"


def test_patches_are_installed() -> None:
    made = package()
    install_all(made, [Patch("Owner", name, replaced, "test") for name in ("own", "inherited")])
    assert made.Owner().own() == made.Owner().inherited() == "replaced"


@pytest.mark.parametrize(
    "last", [Patch("Owner", "missing", replaced, "test"), Patch("Missing", "own", replaced, "test")]
)
def test_a_missing_name_leaves_nothing_behind(last: Patch) -> None:
    made = package()
    before = dict(vars(made.Owner))
    with pytest.raises(AttributeError, match=r"(?i)missing"):
        install_all(
            made,
            [Patch("Owner", "own", replaced, "test"), Patch("Owner", "inherited", replaced, "test"), last],
        )
    assert {**vars(made.Owner)} == before


def test_an_owner_that_cannot_be_changed_leaves_nothing_behind() -> None:
    made = package()
    made.Fixed = int
    before = dict(vars(made.Owner))
    patches = [
        Patch("Owner", "own", replaced, "test"),
        Patch("Owner", "inherited", replaced, "test"),
        Patch("Fixed", "bit_length", replaced, "test"),
    ]
    with pytest.raises(TypeError):
        install_all(made, patches)
    assert {**vars(made.Owner)} == before


def test_names_of_tensorflow_are_public() -> None:
    assert not [each for each in OF_TENSORFLOW if each.name.startswith("_")]


def sources() -> list[Path]:
    return [
        path
        for part in ("_tf", "callbacks", "keras")
        for path in layers.python_files(layers.ROOT / "tf_strategies" / part)
    ]


def test_nothing_walks_frames() -> None:
    for path in sources():
        text = path.read_text()
        assert "_getframe" not in text and "f_locals" not in text and "currentframe" not in text, path


def test_no_class_is_recognised_by_its_name() -> None:
    """The name of a class may be shown; it is not compared."""
    found = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                for side in [node.left, *node.comparators]:
                    for inner in ast.walk(side):
                        if isinstance(inner, ast.Attribute) and inner.attr in ("__name__", "__qualname__"):
                            found.append(f"{path.relative_to(layers.ROOT)}:{inner.lineno}")
    assert not found


# Ours, or of tf.distribute and of strategies, whose faces in keras/ have them.
NOT_OF_KERAS = {"_dealt", "_compression", "_num_replicas_in_sync", "_value_specs", "_in_multi_worker_mode"}


def private_names(path: Path) -> Iterator[str]:
    """Yields the private names that a file uses on objects of others."""
    tree = ast.parse(path.read_text())
    own = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    for node in uses:
        if isinstance(node.ctx, ast.Store) and getattr(node.value, "id", "") == "self":
            own.add(node.attr)
    for node in uses:
        if getattr(node.value, "id", "") != "self" or node.attr not in own:
            yield node.attr
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "setattr", "hasattr"):
            yield from (each.value for each in node.args[1:2] if isinstance(each, ast.Constant))


def test_each_private_name_of_keras_stands_in_the_table() -> None:
    listed = {each.name for each in (*READS, *PATCHES)} | NOT_OF_KERAS
    used = {
        name: path.name
        for part in ("callbacks", "elastic", "keras")
        for path in layers.python_files(layers.ROOT / "tf_strategies" / part)
        for name in private_names(path)
        if name.startswith("_") and not name.startswith("__")
    }
    assert not {name: file for name, file in used.items() if name not in listed}
    unused = {each.name for each in READS} - set(used) - {"_variable"}
    assert not unused
