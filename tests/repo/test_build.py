"""setup.py takes in every source, and the Makefile, the README and the version agree."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys

import pytest

from tests.repo import layers

MAKEFILE = layers.ROOT / "Makefile"
FAT_BINARY = struct.pack("<I", 0xBA55ED50)  # the start of what nvcc stores for several GPUs


def make_targets() -> set:
    return {
        target
        for line in MAKEFILE.read_text().splitlines()
        for target in re.findall(r"^([a-z0-9-]+):(?!=)", line)
    }


def test_make_runs_every_test_file():
    text = MAKEFILE.read_text()
    run = {
        folder
        for name in ("UNITS", "CLUSTERS")
        for folder in re.search(rf"^{name} := (.*)$", text, re.M)[1].split()
    }
    files = [path.relative_to(layers.ROOT) for path in (layers.ROOT / "tests").rglob("test_*.py")]
    assert run == {"/".join(path.parts[:2]) for path in files}


@pytest.mark.parametrize("kind", ["unit", "cluster"])
def test_folders_of_tests_are_named_as_what_they_test(kind: str):
    tested = [layers.ROOT, layers.ROOT / "tf_strategies", layers.ROOT / "tests"]
    names = {path.parent.name for path in (layers.ROOT / "tests" / kind).glob("*/test_*.py")}
    unknown = {name for name in names if not any((folder / name).is_dir() for folder in tested)}
    assert names and not unknown


def test_setup_compiles_every_source():
    program = "import compile_ops, pathlib; print(*compile_ops.sources(pathlib.Path('.')))"
    listed = subprocess.run(
        [sys.executable, "-c", program],
        cwd=layers.ROOT,
        env={**os.environ, "PYTHONPATH": str(layers.ROOT / "tools")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    expected = {
        str(path.relative_to(layers.ROOT))
        for path in (layers.ROOT / "ops").rglob("*.cc")
        if path.relative_to(layers.ROOT).parts[1] not in layers.NOT_SHIPPED
    }
    assert set(listed) == expected


def nvcc_found(named: str) -> str:
    program = "import compile_cuda; print(*compile_cuda.find_nvcc())"
    env = {**os.environ, "PYTHONPATH": str(layers.ROOT / "tools"), "TF_STRATEGIES_NVCC": named}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.strip()


def test_nvcc_can_be_named_or_left_out_and_must_be_new_enough(tmp_path):
    assert nvcc_found("") == "None TF_STRATEGIES_NVCC is empty"
    assert nvcc_found("/nonexistent/nvcc") == "None /nonexistent/nvcc is not found"
    for version, expected in (
        ("12.4", "None {} is too old: CUDA 12.8 or newer is needed"),
        ("13.1", "{} 13.1"),
    ):
        nvcc = tmp_path / version
        nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {version}, V{version}.1'\n")
        nvcc.chmod(0o755)
        assert nvcc_found(str(nvcc)) == expected.format(nvcc)


CUDA_LIBRARY = layers.ROOT / "tf_strategies/native/lib/cuda/libtf_strategies_cuda.so"


@pytest.mark.skipif(not CUDA_LIBRARY.exists(), reason="built without CUDA, as there is no nvcc")
def test_the_cuda_library_has_code_for_each_capability_and_shows_one_function():
    code = CUDA_LIBRARY.read_bytes()
    found = set()
    at = code.find(FAT_BINARY)
    while at >= 0:
        header, size = struct.unpack_from("<HQ", code, at + 6)
        entry, end = at + header, at + header + size
        while entry < end:
            kind, header, size = struct.unpack_from("<H2xIQ", code, entry)
            found.add(("PTX" if kind == 1 else "machine code", *struct.unpack_from("<I", code, entry + 28)))
            entry += header + size
        at = code.find(FAT_BINARY, end)
    assert found == {("machine code", 80), ("machine code", 90), ("machine code", 100), ("PTX", 100)}
    symbols = ["nm", "--dynamic", "--defined-only", str(CUDA_LIBRARY)]
    shown = subprocess.run(symbols, capture_output=True, text=True, check=True).stdout.split()[2::3]
    assert [name for name in shown if not name.startswith("_")] == ["tfs_cuda_functions"]


def test_folders_named_in_the_builds_are_the_layers():
    makefile = (layers.ROOT / "ops" / "core.mk").read_text()
    named = re.search(r"^LAYERS := (.*)$", makefile, re.MULTILINE).group(1).split()
    assert set(named) == set(layers.CORE)


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", ".ci/run"])
def test_make_commands_in_the_documents_exist(document):
    text = (layers.ROOT / document).read_text()
    named = {
        target
        for line in re.findall(r"`?\bmake ((?:[a-z0-9-]+ ?)+)", code_of(document, text))
        for target in line.split()
    }
    assert named, f"{document} names no make target"
    assert named <= make_targets()


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_files_named_in_the_documents_exist(document):
    text = (layers.ROOT / document).read_text()
    named = set(
        re.findall(
            r"\b(?:examples|benchmarks|tests|ops|tools|tf_strategies)/[\w/.-]*\w\.(?:py|cc|h|cu|cuh|md|sh|mk)\b",
            text,
        )
    )
    named |= set(re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text))
    missing = {name for name in named if not (layers.ROOT / name).exists()}
    assert missing == set()


def test_ci_runs_a_test_command_of_the_readme():
    readme, ci = ((layers.ROOT / name).read_text() for name in ("README.md", ".ci/run"))
    named = set(re.findall(r"\bmake (test[a-z-]*)", code_of("README.md", readme)))
    assert named == {"test", "test-all"}
    assert re.search(r'^stage "make test" \d+ make test$', ci, re.MULTILINE)


def test_ci_runs_what_test_all_adds_to_test():
    recipe = re.search(
        r"^parts-of-test-all: parts-of-test\n((?:\t.*\n)+)", MAKEFILE.read_text(), re.MULTILINE
    )
    added = re.findall(r"\$\(AGAIN\) (.+)", recipe.group(1))
    ci = (layers.ROOT / ".ci" / "run").read_text()
    assert len(added) == 4
    for command in added:
        assert re.search(rf'^  "\d+ {command}"$', ci, re.MULTILINE)


def test_every_target_of_the_makefile_is_explained():
    explained = set(re.findall(r"^([a-z0-9-]+):.*## \w", MAKEFILE.read_text(), re.MULTILINE))
    parts = {"sanitize-address", "sanitize-thread", "parts-of-test", "parts-of-test-all", "rest-side-by-side"}
    assert make_targets() - explained <= parts


def test_changelog_has_a_place_for_what_is_next():
    assert re.search(r"^## \[Unreleased\]$", (layers.ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def code_of(document: str, text: str) -> str:
    """What stands in code: the prose of a document may use the word "make" as it likes."""
    if not document.endswith(".md"):
        return text
    return "\n".join(
        [*re.findall(r"```.*?\n(.*?)```", text, re.DOTALL), *re.findall(r"(?<!`)`[^`\n]+`(?!`)", text)]
    )
