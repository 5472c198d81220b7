"""Nothing points up: every #include and every import against the table of layers."""

from __future__ import annotations

import re
import textwrap

import pytest

from tests.repo import layers


def test_every_folder_of_ops_has_its_place():
    folders = {path.parent.relative_to(layers.ROOT / "ops").parts[0] for path in sources(layers.ROOT / "ops")}
    assert folders <= set(layers.OPS), "add the folder to tests/repo/layers.py"


def test_every_part_of_the_package_has_its_place():
    parts = {part_of(path) for path in layers.python_files(layers.ROOT / "tf_strategies")}
    assert parts <= set(layers.PARTS), "add the part to tests/repo/layers.py"


def test_mypy_checks_all_modules_without_tensorflow():
    settings = (layers.ROOT / "pyproject.toml").read_text()
    checked = re.findall(r'^    "(tf_strategies[\w/.]*)",$', settings, re.MULTILINE)
    missing = [
        str(path.relative_to(layers.ROOT))
        for path in layers.python_files(layers.ROOT / "tf_strategies")
        if path.name != "__init__.py" and path.parent.name != "_tf" and not imports_tensorflow(path)
    ]
    assert [each for each in missing if not each.startswith(tuple(checked))] == []


@pytest.mark.parametrize("layer", layers.OPS)
def test_includes_point_down(layer):
    allowed = layers.OPS[layer] | {layer}
    wrong = [
        str(include)
        for path in sources(layers.ROOT / "ops" / layer)
        for include in layers.includes(path)
        if not may_include(include.name, allowed)
    ]
    assert wrong == []


def test_what_any_compiler_takes_includes_no_cuda():
    wrong = [
        str(include)
        for folder in ("ops", "tests/core")
        for path in layers.cpp_files(layers.ROOT / folder)
        for include in layers.includes(path)
        if needs_nvcc(include.name)
    ]
    assert wrong == []


def test_cuda_is_looked_at():
    assert layers.cuda_files(layers.ROOT / "ops" / "cuda")
    assert layers.cuda_files(layers.ROOT / "tests" / "core" / "cuda")


def test_tests_of_the_core_see_no_tensorflow():
    wrong = [
        str(include)
        for path in sources(layers.ROOT / "tests" / "core")
        for include in layers.includes(path)
        if not include.name.startswith(("<gtest/", '"gtest/', '"tests/core/'))
        and not may_include(include.name, set(layers.CORE))
    ]
    assert wrong == []


@pytest.mark.parametrize("part", layers.PARTS)
def test_imports_point_down(part):
    allowed = layers.PARTS[part] | {part}
    wrong = [
        str(reference)
        for path in layers.python_files(layers.ROOT / "tf_strategies")
        if part_of(path) == part
        for reference in layers.imports(path)
        if not may_import(reference.name, allowed)
    ]
    assert wrong == []


@pytest.mark.parametrize("part", layers.ROOMS)
def test_folders_within_a_part_point_down(part):
    rooms = layers.ROOMS[part]
    root = layers.ROOT / "tf_strategies" / part
    assert {path.parent.name for path in root.glob("*/__init__.py")} == set(rooms)
    prefix = f"tf_strategies.{part}."
    wrong = [
        str(reference)
        for room, below in rooms.items()
        for path in layers.python_files(root / room)
        for reference in layers.imports(path)
        if reference.name.startswith(prefix)
        and reference.name.removeprefix(prefix).split(".")[0] not in below | {room}
    ]
    assert wrong == []


def test_one_file_imports_private_tensorflow():
    wrong = [
        str(reference)
        for folder in ("tf_strategies", "examples", "benchmarks", "tests")
        for path in layers.python_files(layers.ROOT / folder)
        if path != layers.ROOT / layers.ONLY_IMPORTER_OF_PRIVATE_TENSORFLOW
        for reference in layers.imports(path)
        if reference.name.startswith(layers.PRIVATE_TENSORFLOW)
    ]
    assert wrong == []


def test_examples_import_only_what_is_public():
    wrong = [
        str(reference)
        for path in layers.python_files(layers.ROOT / "examples")
        for reference in layers.imports(path)
        if reference.name.startswith(("tf_strategies.", "tests", "benchmarks"))
    ]
    assert wrong == []


def test_every_folder_of_the_package_is_a_package():
    missing = {
        str(path.parent.relative_to(layers.ROOT))
        for path in layers.python_files(layers.ROOT / "tf_strategies")
        if not (path.parent / "__init__.py").exists()
    }
    assert missing == set()


@pytest.mark.parametrize(
    ("include", "allowed", "verdict"),
    [
        ('"ops/base/status.h"', {"base"}, True),
        ('"ops/kernels/x.h"', {"base"}, False),
        ('"status.h"', {"base"}, False),
        ("<vector>", {"base"}, True),
        ("<sys/mman.h>", {"base"}, True),
        ("<ucp/api/ucp.h>", {"base"}, False),
        ("<ucp/api/ucp.h>", {"base", "transport"}, True),
        ('"tensorflow/core/framework/op.h"', {"communicator"}, False),
        ('"tensorflow/core/framework/op.h"', {"kernels"}, True),
        ("<cuda_runtime.h>", {"compress"}, False),
        ("<cub/cub.cuh>", {"base"}, False),
        ("<cuda_runtime.h>", {"cuda"}, True),
        ('"ops/cuda/top_k.cuh"', {"base", "compress"}, False),
        ("MACRO_HEADER", {"base"}, False),
    ],
)
def test_rule_for_includes_can_say_no(include, allowed, verdict):
    assert may_include(include, allowed) is verdict


@pytest.mark.parametrize(
    ("include", "verdict"),
    [
        ("<cuda_runtime.h>", True),
        ('"ops/cuda/top_k.cuh"', True),
        ("<cub/cub.cuh>", True),
        ('"ops/cuda/segments.h"', False),
        ("<cstdint>", False),
    ],
)
def test_rule_for_cuda_can_say_yes(include, verdict):
    assert needs_nvcc(include) is verdict


@pytest.mark.parametrize(
    ("name", "allowed", "verdict"),
    [
        ("json", set(), True),
        ("tf_strategies.errors", {"errors"}, True),
        ("tf_strategies.native.loader", {"errors"}, False),
        ("tf_strategies", {"errors"}, False),
        ("tensorflow", {"errors"}, False),
        ("keras.layers", {"errors"}, False),
        ("tensorflow", {"tensorflow"}, True),
        ("tests.support", {"tensorflow"}, False),
    ],
)
def test_rule_for_imports_can_say_no(name, allowed, verdict):
    assert may_import(name, allowed) is verdict


def test_imports_for_type_checkers_can_be_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(layers, "ROOT", tmp_path)
    source = tmp_path / "tf_strategies" / "types.py"
    source.parent.mkdir()
    source.write_text(
        "import json\nif TYPE_CHECKING:\n    import tensorflow as tf\nelse:\n    import secrets\n"
    )
    assert [each.name for each in layers.imports(source)] == ["json", "tensorflow", "secrets"]
    assert [each.name for each in layers.imports(source, when_run=True)] == ["json", "secrets"]


def test_imports_are_found_at_every_depth(tmp_path, monkeypatch):
    monkeypatch.setattr(layers, "ROOT", tmp_path)
    package = tmp_path / "tf_strategies" / "control_plane"
    package.mkdir(parents=True)
    (tmp_path / "tf_strategies" / "errors.py").touch()
    source = package / "late.py"
    source.write_text(
        textwrap.dedent(
            """
            from .. import errors
            from . import late
            from tf_strategies import errors
            from tensorflow import python
            def wait():
                import tensorflow as tf
                importlib.import_module("tensorflow.python")
            """
        )
    )
    assert [reference.name for reference in layers.imports(source)] == [
        "tf_strategies.errors",
        "tf_strategies.control_plane.late",
        "tf_strategies.errors",
        "tensorflow.python",
        "tensorflow",
        "tensorflow.python",
    ]


def imports_tensorflow(path) -> bool:
    """Whether the file itself imports TensorFlow or what wraps it, when it is run."""
    return any(
        reference.name == name or reference.name.startswith(f"{name}.")
        for reference in layers.imports(path, when_run=True)
        for name in ("tensorflow", "tf_strategies._tf")
    )


def part_of(path) -> str:
    """The part of tf_strategies a file belongs to: its folder, or its name directly below."""
    return path.relative_to(layers.ROOT / "tf_strategies").with_suffix("").parts[0]


def sources(folder) -> list:
    return [*layers.cpp_files(folder), *layers.cuda_files(folder)]


def needs_nvcc(name: str) -> bool:
    bare = name.strip('<>"')
    return bare.endswith(".cuh") or bare.startswith(layers.FOREIGN_HEADERS["cuda"])


def may_include(name: str, allowed: set) -> bool:
    bare = name.strip('<>"')
    if bare.startswith("ops/"):
        return bare.split("/")[1] in allowed
    for layer, prefixes in layers.FOREIGN_HEADERS.items():
        if bare.startswith(prefixes):
            return layer in allowed
    standard = "/" not in bare or bare.startswith(("sys/", "netinet/", "arpa/", "linux/"))
    return name.startswith("<") and standard


def may_import(name: str, allowed: set) -> bool:
    top, *rest = name.split(".")
    if top == "tf_strategies":
        return bool(rest) and rest[0] in allowed
    if top in ("tensorflow", "keras", "tf_keras"):
        return "tensorflow" in allowed
    return top not in ("tests", "examples", "benchmarks", "tools")
