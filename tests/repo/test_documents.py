"""The documents lead to one another, and the README stays a door."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tf_strategies as tfs
from tests.support.processes import REPOSITORY

pytestmark = pytest.mark.any_line

PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    missing = [
        target
        for target in targets
        if not re.match(r"https?://", target) and not (page.parent / target).exists()
    ]
    assert missing == []


def test_the_index_names_every_page() -> None:
    index = (REPOSITORY / "docs" / "index.md").read_text()
    pages = {page.name for page in (REPOSITORY / "docs").glob("*.md")} - {"index.md"}
    assert pages - set(re.findall(r"\(([\w]+\.md)\)", index)) == set()


def test_no_file_has_the_marks_of_a_merge() -> None:
    marks = "^(<{7}|>{7}) "
    found = subprocess.run(
        ["git", "grep", "-nE", marks], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if found.returncode not in (0, 1):
        pytest.skip("this is no clone of the repository")
    assert not found.stdout, found.stdout


def test_the_readme_is_short() -> None:
    lines = (REPOSITORY / "README.md").read_text().splitlines()
    assert len(lines) <= 150
    assert "make demo" in "\n".join(lines[:15])
    assert "```python" in lines[:35]


def test_the_site_has_every_page() -> None:
    navigation = set(re.findall(r": ([\w/]+\.md)$", (REPOSITORY / "mkdocs.yml").read_text(), re.M))
    docs = REPOSITORY / "docs"
    assert {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")} <= navigation


def test_the_reference_has_every_public_name() -> None:
    listed = {
        name
        for page in (REPOSITORY / "docs" / "api").glob("*.md")
        for name in re.findall(r"^(?::::|##) tf_strategies\.([\w.]+)", page.read_text(), re.M)
    }
    expected = {"estimator"}
    for name in set(tfs.__all__) - {"__version__", "estimator"}:
        inside = getattr(getattr(tfs, name), "__all__", None)
        expected |= {name} if inside is None else {f"{name}.{each}" for each in inside}
    assert listed == expected


def test_the_pictures_are_what_is_drawn() -> None:
    program = [sys.executable, str(REPOSITORY / "tools" / "draw_pictures.py"), "--check"]
    drawn = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert drawn.returncode == 0, drawn.stdout + drawn.stderr


def test_the_picture_of_the_architecture_has_every_layer() -> None:
    drawn = set(re.findall(r">([\w/]+)</text>", (REPOSITORY / "docs/pictures/architecture.svg").read_text()))
    folders = {path.parent.name for path in (REPOSITORY / "tf_strategies").glob("*/__init__.py")}
    layers = {path.parent.name for path in (REPOSITORY / "ops").glob("*/BUILD")}
    assert folders - drawn == {"estimator"}
    assert {f"ops/{layer}" for layer in layers} - drawn == {
        "ops/analysis",
        "ops/bench",
        "ops/tools",
    }
