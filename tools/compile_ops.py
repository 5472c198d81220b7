"""Compiles the sources under ops/ into one shared library.

Only the kernels see TensorFlow. The other objects are kept once for all versions of TensorFlow that want the same flags.
Most of a kernel's compilation goes into the headers of TensorFlow, so the compiler sees several kernels at a time: names that
a kernel keeps to itself differ from those of all other kernels.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
from pathlib import Path

from build_steps import Compilation, compile_all, holds, link
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
    "staging",
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
    compilations = []
    for source in [*units, *(source for source in listed if not _is_kernel(source))]:
        command = _compile_command(compiler, source, found)
        recorded = _recorded(command, found)
        folder = work if _is_kernel(source) else _core_folder(work, recorded)
        compilations.append(Compilation(source, command, folder, recorded))
    compile_all(root, compilations)
    objects = [each.object for each in compilations]
    inputs = [*objects, root / "ops" / "exports.map"]
    link(root, work, _link_command(compiler, objects, found, editable), library, inputs)


def _is_kernel(source: Path) -> bool:
    """Returns whether a source, or a file that includes sources, sees TensorFlow."""
    return source.is_absolute() or source.parts[1] == "kernels"


def _write_kernel_units(work: Path, kernels: list[Path]) -> list[Path]:
    """Writes the files that include the kernels, where they differ from those that are there; returns their absolute paths."""
    units = []
    for number in range(KERNEL_UNITS):
        unit = work.absolute() / f"kernels_{number}.cc"
        text = "".join(f'#include "{source}"\n' for source in kernels[number::KERNEL_UNITS])
        if not holds(unit, text):
            unit.parent.mkdir(parents=True, exist_ok=True)
            unit.write_text(text)
        units.append(unit)
    return units


def compiler_version() -> str:
    """The first line of what the compiler says of itself."""
    command = [*shlex.split(os.environ.get("CXX", "g++")), "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]


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


def _core_folder(work: Path, recorded: str) -> Path:
    """Returns the folder of objects that do not see TensorFlow, which is that of their flags."""
    return work.parent / f"core-{hashlib.sha256(recorded.encode()).hexdigest()[:8]}"


def _link_command(compiler: list[str], objects: list[Path], found: Installation, editable: bool) -> list[str]:
    command = [*compiler, "-shared", "-pthread", "-Wl,--version-script=ops/exports.map", "-Wl,-z,defs"]
    command += [str(path) for path in objects]
    command += [*found.link_flags, f"-L{found.ucx / 'lib'}", "-lucp", "-lucs", "-ldl"]
    to_site_packages = "/".join([".."] * 4)
    command.append(f"-Wl,-rpath,$ORIGIN/{to_site_packages}/libucx/lib")
    if editable:
        command.append(f"-Wl,-rpath,{found.ucx / 'lib'}")
    return command
