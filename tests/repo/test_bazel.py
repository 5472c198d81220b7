"""The Bazel files name every source of the core, and their visibility repeats the layers."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.repo import layers


class Package:
    """What a BUILD file declares; Starlark is close enough to Python to be run as such."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.rules = {}
        names = ("cc_library", "cc_binary", "cc_test", "test_suite", "alias", "package", "core_tests")
        scope = {name: functools.partial(self._declare, name) for name in names}
        scope.update(glob=self._glob, load=lambda *names: None)
        exec(compile((folder / "BUILD").read_text(), str(folder / "BUILD"), "exec"), scope)

    def _declare(self, rule: str, name: str = "", **attributes) -> None:
        self.rules[name] = {"rule": rule, **attributes}

    def _glob(self, patterns, exclude=()) -> list:
        found = {path for pattern in patterns for path in self.folder.glob(pattern) if path.is_file()}
        found -= {path for pattern in exclude for path in self.folder.glob(pattern)}
        return sorted(str(path.relative_to(self.folder)) for path in found)

    def sources(self) -> set:
        named = [
            *(rule.get("srcs", []) for rule in self.rules.values()),
            *(rule.get("hdrs", []) for rule in self.rules.values()),
        ]
        return {self.folder / name for names in named for name in names}


@functools.cache
def package(folder: str) -> Package:
    return Package(layers.ROOT / folder)


@pytest.mark.parametrize("layer", [*layers.CORE, *sorted(layers.PROGRAMS)])
def test_build_file_names_every_source(layer):
    folder = f"ops/{layer}"
    assert set(layers.cpp_files(layers.ROOT / folder)) == package(folder).sources()


@pytest.mark.parametrize("layer", layers.CORE)
def test_dependencies_repeat_the_layers(layer):
    depends = {
        name.split("/")[-1]
        for name in package(f"ops/{layer}").rules[layer].get("deps", [])
        if name.startswith("//")
    }
    assert depends <= layers.CORE[layer]


@pytest.mark.parametrize("layer", layers.CORE)
def test_visibility_repeats_the_layers(layer):
    visible = set(package(f"ops/{layer}").rules[layer]["visibility"]) - {"//:__pkg__"}
    users = {user for user, allowed in layers.OPS.items() if layer in allowed}
    assert visible == {f"//ops/{user}:__subpackages__" for user in users} | {"//tests/core:__subpackages__"}


def test_only_the_transport_sees_ucx():
    users = [layer for layer in layers.CORE if "@ucx" in package(f"ops/{layer}").rules[layer].get("deps", [])]
    assert users == ["transport"]


def test_every_core_test_is_in_a_folder_that_bazel_tests():
    tests = layers.ROOT / "tests" / "core"
    folders = {path.relative_to(tests).parts[0] for path in tests.rglob("*_*.cc") if is_test(path)}
    declared = {path.parent.name for path in tests.glob("*/BUILD") if "\ncore_tests(" in path.read_text()}
    assert folders <= declared
    assert {f"//tests/core/{folder}:tests" for folder in declared} == set(
        package("").rules["core_tests"]["tests"]
    )


def is_test(path: Path) -> bool:
    return path.name.endswith(("_test.cc", "_fuzz.cc"))


def test_tests_are_globbed():
    rule = (layers.ROOT / "tests" / "core" / "core_tests.bzl").read_text()
    assert 'glob(["**/*_test.cc", "**/*_fuzz.cc"])' in rule


def test_shared_sources_of_the_tests_are_named():
    assert (
        set(layers.cpp_files(layers.ROOT / "tests/core/support")) == package("tests/core/support").sources()
    )
