"""Adds files from outside of docs/ to the site: CONTRIBUTING, the changelog, examples and pictures.

MkDocs calls these functions while it builds. Links work in the repository as well as in the site.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    **{f"benchmarks/{path.name}": f"benchmarks/{path.name}" for path in sorted(ROOT.glob("benchmarks/*.md"))},
}
FILES = (
    "examples/**/*.py",
    "examples/**/*.ipynb",
    "examples/**/*.yaml",
    "examples/**/*.sbatch",
    "examples/**/Dockerfile",
    "benchmarks/*.png",
)
_log = logging.getLogger("mkdocs.plugins.site_hooks")
_LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Adds the files that lie outside of docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    for pattern in FILES:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Warns of an example that is shown as quoted text: `>>>` outside of a section that holds code."""
    if page.file.src_uri.startswith("api/") and "<blockquote>" in html:
        _log.warning("%s shows an example of a docstring as quoted text", page.file.src_uri)
    return html


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrites links so that they lead to where the files are in the site."""
    source = next((ROOT / name for name, target in PAGES.items() if target == page.file.src_uri), None)
    folder = source.parent if source else (ROOT / "docs" / page.file.src_uri).parent
    depth = page.file.src_uri.count("/")

    def moved(link: re.Match[str]) -> str:
        target = (folder / link.group(1)).resolve()
        if not target.is_relative_to(ROOT):
            return str(link.group(0))
        name = target.relative_to(ROOT).as_posix()
        name = PAGES.get(name, name.removeprefix("docs/"))
        return f"]({'../' * depth}{name}{link.group(2) or ''})"

    return _LINK.sub(moved, markdown)
