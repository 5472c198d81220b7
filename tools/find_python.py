"""Finds an interpreter that a TensorFlow has packages for.

Usage: python3 tools/find_python.py OLDEST NEWEST [PREFERRED], e.g. 3.10 3.13 3.11. Looks at PATH and at the versions of pyenv,
and prints the path. Ends with status 1 and one line that says what is missing if there is none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Iterator

__all__ = ["find_python"]

PROBE = "import ensurepip, ssl, sys, venv; print('%d.%d' % sys.version_info[:2])"


def find_python(oldest: str, newest: str, preferred: str = "") -> str | None:
    """Returns the path of an interpreter of a version from `oldest` to `newest`; None if there is none.

    Args:
        oldest: the first version that will do, such as "3.10".
        newest: the last one.
        preferred: the version to take if it is there; otherwise the newest is taken.
    """
    wanted = [f"3.{minor}" for minor in range(_minor(newest), _minor(oldest) - 1, -1)]
    wanted.sort(key=lambda version: version != preferred)
    for version in wanted:
        for path in _candidates(version):
            if _is_usable(path, version):
                return path
    return None


def _minor(version: str) -> int:
    return int(version.split(".")[1])


def _candidates(version: str) -> Iterator[str]:
    for name in (f"python{version}", "python3", "python"):
        path = shutil.which(name)
        if path:
            yield path
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for folder in sorted(root.glob(f"versions/{version}.*")):
        yield str(folder / "bin" / "python")


def _is_usable(path: str, version: str) -> bool:
    """Returns True if the interpreter is of this version and can make environments."""
    try:
        done = subprocess.run([path, "-c", PROBE], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.strip() == version


def main(arguments: list[str]) -> int:
    found = find_python(*arguments)
    if found is None:
        oldest, newest = arguments[:2]
        sys.stderr.write(
            f"TensorFlow needs a Python from {oldest} to {newest}, with venv and ssl, and there is none on PATH or in pyenv: "
            "install one, or name it: make PYTHON=/path/to/python\n"
        )
        return 1
    print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
