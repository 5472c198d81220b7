"""Runs Keras's own unit tests with our bridge and without it; they must end alike.

python -m tests.upstream [PART ...]

PART is a file or a folder below `keras/src`; by default those whose code the bridge touches. The tests are those of the installed
package. A Keras that brings none is reported, and is no failure. A file that cannot be read is a failure. Some need jax, torch,
grain and orbax, which `make test-keras-upstream` installs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Dict, List

PARTS = ("trainers", "optimizers", "callbacks", "losses", "metrics", "backend/tensorflow")
# They need TensorFlow's file system plugins for the cloud, or profile the whole process.
LEFT_OUT = ("tensorboard_test.py",)
SECONDS = 1800.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=PARTS)
    sources = Path(find_spec("keras").submodule_search_locations[0]) / "src"
    files = [
        path
        for part in parser.parse_args().parts
        for path in sorted(
            (sources / part).rglob("*_test.py") if (sources / part).is_dir() else [sources / part]
        )
        if path.name not in LEFT_OUT
    ]
    if not files:
        print(f"skipped: {sources} has no tests; the packages of Keras 3.9 and later bring theirs")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        plain, bridged = (_outcomes(sources, files, bridge, Path(folder)) for bridge in (False, True))
    different = [name for name in {**plain, **bridged} if plain.get(name) != bridged.get(name)]
    for name in different:
        print(
            f"{name}: {plain.get(name, 'not run')} without the bridge, {bridged.get(name, 'not run')} with it"
        )
    print(
        f"{len(files)} files; without the bridge {_counts(plain)}; with it {_counts(bridged)}; {len(different)} differ"
    )
    counts = Counter(bridged.values())
    return 1 if different or counts["not read"] or not counts["passed"] else 0


def _outcomes(sources: Path, files: List[Path], bridge: bool, folder: Path) -> Dict[str, str]:
    """Returns how each test ended, by name."""
    kept = folder / f"outcomes{bridge}.json"
    repository = str(Path(__file__).resolve().parents[2])
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.upstream.plugin"]
        + ["-c", os.devnull, "--rootdir", str(sources), "--no-header", "-W", "ignore"]
        + ["--tb", "short" if bridge else "no"]
        + [str(path) for path in files],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": repository,
            "TFS_UPSTREAM_BRIDGE": str(int(bridge)),
            "TFS_UPSTREAM_OUTCOMES": str(kept),
        },
        timeout=SECONDS,
        check=False,
    )
    return dict(json.loads(kept.read_text()))


def _counts(outcomes: Dict[str, str]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(Counter(outcomes.values()).items()))


if __name__ == "__main__":
    sys.exit(main())
