"""Compiles and links, and again only what changed.

Beside each object lie the list of headers it was made from (written by the compiler) and the command that made it; it is
compiled again when one of them is newer or when the command is another.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Compilation:
    """A source, and how it is compiled.

    Attributes:
        source: relative to the repository, or absolute for a file that the build writes.
        command: without the names of files.
        work: the folder of the object.
        recorded: the command as it is compared with that of the last build.
    """

    source: Path
    command: Sequence[str]
    work: Path
    recorded: str = ""

    @property
    def object(self) -> Path:
        """The file that is made."""
        return self.work / self.source.with_suffix(".o")

    @property
    def record(self) -> str:
        """The command as it is kept beside the object."""
        return self.recorded or shlex.join(self.command)


def compile_all(root: Path, compilations: Sequence[Compilation]) -> None:
    """Compiles what is not up to date, several files at a time, and prints what is done."""
    stale = [each for each in compilations if not _is_current(root, each)]
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(_jobs()) as pool:
        jobs = {pool.submit(_compile, root, each): each for each in stale}
        for number, job in enumerate(concurrent.futures.as_completed(jobs), start=1):
            error = job.exception()
            if error is not None:
                pool.shutdown(cancel_futures=True)
                raise error
            seconds = time.monotonic() - started
            print(f"[{number}/{len(stale)}] {jobs[job].source} ({seconds:.0f} s)", flush=True)


def link(root: Path, work: Path, command: Sequence[str], library: Path, inputs: Sequence[Path]) -> None:
    """Links a library, unless it is newer than all inputs and the command is that of the last time."""
    linked_by = work / "link.cmd"
    text = shlex.join([*command, "-o", str(library)])
    newest = max(path.stat().st_mtime_ns for path in inputs)
    if library.exists() and library.stat().st_mtime_ns >= newest and holds(linked_by, text):
        return
    library.parent.mkdir(parents=True, exist_ok=True)
    unfinished = library.with_suffix(".unfinished")
    _run([*command, "-o", str(unfinished)], root, library.name)
    unfinished.replace(library)
    linked_by.write_text(text)


def holds(path: Path, text: str) -> bool:
    """Returns whether a file has this text."""
    return path.exists() and path.read_text() == text


def _jobs() -> int:
    return max(1, int(os.environ.get("TF_STRATEGIES_JOBS", min(os.cpu_count() or 1, 8))))


def _is_current(root: Path, compilation: Compilation) -> bool:
    target = compilation.object
    made_by, headers = target.with_suffix(".cmd"), target.with_suffix(".d")
    if not (target.exists() and headers.exists() and holds(made_by, compilation.record)):
        return False
    made = target.stat().st_mtime_ns
    names = shlex.split(headers.read_text().partition(": ")[2].replace("\\\n", " "))
    for name in names:
        path = root / name
        if not path.exists() or path.stat().st_mtime_ns > made:
            return False
    return True


def _compile(root: Path, compilation: Compilation) -> None:
    target = compilation.object
    target.parent.mkdir(parents=True, exist_ok=True)
    made_by = target.with_suffix(".cmd")
    made_by.unlink(missing_ok=True)
    names = ["-MMD", "-MF", str(target.with_suffix(".d")), "-c", str(compilation.source), "-o", str(target)]
    _run([*compilation.command, *names], root, str(compilation.source))
    made_by.write_text(compilation.record)


def _run(command: Sequence[str], cwd: Path, what: str) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"tf_strategies: building {what} failed:\n{shlex.join(command)}\n{done.stderr}")
    if done.stderr:
        print(done.stderr, file=sys.stderr)
