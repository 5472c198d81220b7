"""The table of TensorFlow's private names is what is used, and is loaded whole or not at all."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import tensorflow as tf

import tf_strategies
from tf_strategies._tf import private_names

FOLDER = Path(tf_strategies.__file__).parent / "_tf"


def attributes_used() -> set:
    """Private attributes of other objects than `self` and `super()`, also those named for getattr."""
    found = set()
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(
                node.value, (ast.Name, ast.Subscript, ast.Call)
            ):
                owner = node.value
                ours = isinstance(owner, ast.Name) and owner.id in ("self", "private")
                ours |= isinstance(owner, ast.Call) and getattr(owner.func, "id", "") == "super"
                found |= set() if ours else {node.attr}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {node.value}
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def names_used() -> set:
    return {
        node.attr
        for path in FOLDER.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "private"
    }


def test_the_table_is_what_is_used():
    names = [name for reasons in private_names.NAMES.values() for name in reasons]
    assert len(names) == len(set(names))
    assert names_used() == set(names)


def test_the_table_of_attributes_is_what_is_used():
    listed = {name for names in private_names.ATTRIBUTES.values() for name in names}
    assert attributes_used() - set(vars(private_names.private)) == listed


def test_all_that_is_missing_is_named():
    table = {
        **private_names.NAMES,
        "distribute.values": {"PerReplica": "is there", "PerPlanet": "is not"},
        "distribute.no_such_module": {"Anything": "is not"},
    }
    with pytest.raises(ImportError) as raised:
        private_names.load(table)
    assert f"The installed TensorFlow {tf.__version__} lacks these names" in str(raised.value)
    assert "needs: distribute.values.PerPlanet, distribute.no_such_module.Anything. Install" in str(
        raised.value
    )
    assert "tested with TensorFlow 2.15 to 2.21" in str(raised.value)
