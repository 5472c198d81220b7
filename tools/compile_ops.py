"""Compiles the sources under ops/ into one shared library, and again only what changed.

Beside each object lie the list of headers it was made from (written by the compiler) and the command that
made it; it is compiled again when one of them is newer or when the command is another.

Only the kernels see TensorFlow. The other objects are kept once for all versions of TensorFlow that want the same flags.
Most of a kernel's compilation goes into the headers of TensorFlow, so the compiler sees several kernels at a time: names that
a kernel keeps to itself differ from those of all other kernels.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from find_tensorflow import Installation

LAYERS = (
    "base",
    "schedule",
    "reduce",
    "compress",
    "transport",
    "communicator",
    "channel",
    "confine",
    "ledger",
    "kernels",
)
OPTIMIZE = ("-O3", "-g0", "-DNDEBUG", "-fPIC", "-pthread")
WARN = ("-Wall", "-Wextra")
KERNEL_UNITS = 4  # files that include the kernels, compiled in place of them


def sources(root: Path) -> list[Path]:
    """The sources of the library, relative to the root of the repository."""
    return [
        path.relative_to(root) for layer in LAYERS for path in sorted((root / "ops" / layer).rglob("*.cc"))
    ]


def build_library(root: Path, work: Path, library: Path, found: Installation, editable: bool) -> None:
    """Brings the library up to date.

    Args:
        root: the repository.
        work: where objects are kept from one build to the next.
        library: the file to make.
        found: what to compile and link against.
        editable: the library stays in the source tree, so that it names the place of UCX in full.
    """
    compiler = shlex.split(os.environ.get("CXX", "g++"))
    if shutil.which(compiler[0]) is None:
        raise SystemExit(
            f"tf_strategies: no C++17 compiler: {compiler[0]!r} is not found. Install g++, or set CXX."
        )
    listed = sources(root)
    units = _write_kernel_units(work, [source for source in listed if _is_kernel(source)])
    commands = {
        source: _compile_command(compiler, source, found)
        for source in [*units, *(source for source in listed if not _is_kernel(source))]
    }
    works = {source: _work_folder(work, source, command, found) for source, command in commands.items()}
    stale = [
        source
        for source, command in commands.items()
        if not _is_current(root, works[source], source, command, found)
    ]
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(_jobs()) as pool:
        jobs = {
            pool.submit(_compile, root, works[source], source, commands[source], found): source
            for source in stale
        }
        for number, job in enumerate(concurrent.futures.as_completed(jobs), start=1):
            error = job.exception()
            if error is not None:
                pool.shutdown(cancel_futures=True)
                raise error
            print(f"[{number}/{len(stale)}] {jobs[job]} ({time.monotonic() - started:.0f} s)", flush=True)
    objects = [_object(works[source], source) for source in commands]
    _link(root, work, compiler, objects, library, found, editable)


def _is_kernel(source: Path) -> bool:
    """Returns whether a source, or a file that includes sources, sees TensorFlow."""
    return source.is_absolute() or source.parts[1] == "kernels"


def _write_kernel_units(work: Path, kernels: list[Path]) -> list[Path]:
    """Writes the files that include the kernels, where they differ from those that are there; returns their absolute paths."""
    units = []
    for number in range(KERNEL_UNITS):
        unit = work.absolute() / f"kernels_{number}.cc"
        text = "".join(f'#include "{source}"\n' for source in kernels[number::KERNEL_UNITS])
        if not _holds(unit, text):
            unit.parent.mkdir(parents=True, exist_ok=True)
            unit.write_text(text)
        units.append(unit)
    return units


def compiler_version() -> str:
    """The first line of what the compiler says of itself."""
    command = [*shlex.split(os.environ.get("CXX", "g++")), "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def _jobs() -> int:
    return max(1, int(os.environ.get("TF_STRATEGIES_JOBS", min(os.cpu_count() or 1, 8))))


def _compile_command(compiler: list[str], source: Path, found: Installation) -> list[str]:
    command = [*compiler, *OPTIMIZE, *WARN]
    if os.environ.get("TF_STRATEGIES_WERROR", "0") != "0":
        command.append("-Werror")
    abi = [flag for flag in found.compile_flags if not flag.startswith("-I")]
    command += [*abi, "-I.", "-isystem", str(found.ucx / "include")]
    if _is_kernel(source):
        for flag in found.compile_flags:
            if flag.startswith("-I"):
                command += ["-isystem", flag[2:]]
    return command


def _recorded(command: list[str], found: Installation) -> str:
    """Returns the command without what makes no difference to the object: warnings, and where UCX is installed."""
    words = (word.replace(str(found.ucx), f"ucx-{found.ucx_version}") for word in command)
    return shlex.join(word for word in words if word != "-Werror")


def _work_folder(work: Path, source: Path, command: list[str], found: Installation) -> Path:
    """Returns the folder for an object: that of its TensorFlow, or for one that does not see it that of its flags."""
    if _is_kernel(source):
        return work
    return work.parent / f"core-{hashlib.sha256(_recorded(command, found).encode()).hexdigest()[:8]}"


def _holds(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


def _object(work: Path, source: Path) -> Path:
    return work / source.with_suffix(".o")


def _is_current(root: Path, work: Path, source: Path, command: list[str], found: Installation) -> bool:
    target = _object(work, source)
    made_by, headers = target.with_suffix(".cmd"), target.with_suffix(".d")
    if not (target.exists() and headers.exists() and _holds(made_by, _recorded(command, found))):
        return False
    made = target.stat().st_mtime_ns
    names = shlex.split(headers.read_text().partition(": ")[2].replace("\\\n", " "))
    for name in names:
        path = root / name
        if not path.exists() or path.stat().st_mtime_ns > made:
            return False
    return True


def _compile(root: Path, work: Path, source: Path, command: list[str], found: Installation) -> None:
    target = _object(work, source)
    target.parent.mkdir(parents=True, exist_ok=True)
    made_by = target.with_suffix(".cmd")
    made_by.unlink(missing_ok=True)
    _run(
        [*command, "-MMD", "-MF", str(target.with_suffix(".d")), "-c", str(source), "-o", str(target)],
        root,
        str(source),
    )
    made_by.write_text(_recorded(command, found))


def _link(
    root: Path,
    work: Path,
    compiler: list[str],
    objects: list[Path],
    library: Path,
    found: Installation,
    editable: bool,
) -> None:
    command = [*compiler, "-shared", "-pthread", "-Wl,--version-script=ops/exports.map", "-Wl,-z,defs"]
    command += [str(path) for path in objects]
    command += [*found.link_flags, f"-L{found.ucx / 'lib'}", "-lucp", "-lucs", "-ldl"]
    to_site_packages = "/".join([".."] * 4)
    command.append(f"-Wl,-rpath,$ORIGIN/{to_site_packages}/libucx/lib")
    if editable:
        command.append(f"-Wl,-rpath,{found.ucx / 'lib'}")
    linked_by = work / "link.cmd"
    newest = max(path.stat().st_mtime_ns for path in [*objects, root / "ops" / "exports.map"])
    text = shlex.join([*command, "-o", str(library)])
    if library.exists() and library.stat().st_mtime_ns >= newest and _holds(linked_by, text):
        return
    library.parent.mkdir(parents=True, exist_ok=True)
    unfinished = library.with_suffix(".unfinished")
    _run([*command, "-o", str(unfinished)], root, library.name)
    unfinished.replace(library)
    linked_by.write_text(text)


def _run(command: list[str], cwd: Path, what: str) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"tf_strategies: building {what} failed:\n{shlex.join(command)}\n{done.stderr}")
    if done.stderr:
        print(done.stderr, file=sys.stderr)
