"""The documents lead to one another, and the README stays a door."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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


def test_the_readme_is_short() -> None:
    lines = (REPOSITORY / "README.md").read_text().splitlines()
    assert len(lines) <= 150
    assert "make demo" in "\n".join(lines[:15])
    assert "```python" in lines[:35]
