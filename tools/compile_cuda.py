"""Compiles ops/cuda into a shared library of its own, where there is nvcc.

The library knows neither TensorFlow nor Python, so one serves all of them. CUDA's runtime is linked into it, and the driver is
looked for when it is used: it loads on a machine without a GPU.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Optional

from build_steps import Compilation, compile_all, link

OLDEST_NVCC = (12, 8)  # the first that knows the device of a stream, and capability 10.0
CAPABILITIES = (80, 90, 100)  # later GPUs compile the code of the last when it is first used
FOLDERS = ("base", "compress")  # the sources that the kernels use on the host
EXPORTS = "ops/cuda/exports.map"


def find_nvcc() -> tuple[Optional[str], str]:
    """Returns the path of nvcc and its version, or None and the reason why the library is not built.

    TF_STRATEGIES_NVCC names one; if it is empty, none is used. Otherwise it is that of NVIDIA's packages for pip, that of
    PATH, or that of /usr/local/cuda.
    """
    named = os.environ.get("TF_STRATEGIES_NVCC")
    if named == "":
        return None, "TF_STRATEGIES_NVCC is empty"
    packages = Path(sysconfig.get_paths()["purelib"], "nvidia")
    installed = sorted(packages.glob("*/bin/nvcc"), reverse=True)
    places = [named] if named else [*installed, shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"]
    found = next((str(path) for path in places if path and Path(path).exists()), None)
    if found is None:
        return None, f"{named or 'nvcc'} is not found"
    version = _version(found)
    if version < OLDEST_NVCC:
        return None, f"{found} is too old: CUDA {'.'.join(map(str, OLDEST_NVCC))} or newer is needed"
    return found, ".".join(map(str, version))


def sources(root: Path) -> list[Path]:
    """Returns the sources of the library, relative to the root of the repository."""
    kernels = sorted((root / "ops" / "cuda").glob("*.cu"))
    others = [path for folder in FOLDERS for path in sorted((root / "ops" / folder).glob("*.cc"))]
    return [path.relative_to(root) for path in [*kernels, *others]]


def build_library(root: Path, work: Path, library: Path, nvcc: str, version: str) -> None:
    """Brings the library up to date.

    Args:
        root: the repository.
        work: where objects are kept from one build to the next.
        library: the file to make.
        nvcc: the compiler.
        version: of the compiler.
    """
    host = ["-std=c++17", "-O3", "-DNDEBUG", "-Xcompiler", "-fPIC,-pthread,-fvisibility=hidden,-Wall,-Wextra"]
    # --fmad=false: a product and a sum are two roundings, as on the CPU.
    device = ["--fmad=false", *(f"-gencode=arch=compute_{each},code=sm_{each}" for each in CAPABILITIES)]
    device.append(f"-gencode=arch=compute_{CAPABILITIES[-1]},code=compute_{CAPABILITIES[-1]}")
    if os.environ.get("CXX"):
        host.append(f"-ccbin={shlex.split(os.environ['CXX'])[0]}")
    # Objects of another nvcc at the same place are not used again.
    host.append(f"-DTFS_NVCC={version}")
    compilations = [
        Compilation(source, [nvcc, *host, *(device if source.suffix == ".cu" else []), "-I."], work)
        for source in sources(root)
    ]
    compile_all(root, compilations)
    command = [
        nvcc,
        *device,
        "-shared",
        "-cudart",
        "static",
        "-Xlinker",
        f"--version-script={EXPORTS}",
        "-Xlinker",
        "-z,defs",
    ]
    command += [f"-L{Path(nvcc).resolve().parents[1] / 'lib'}"]
    command += [str(each.object) for each in compilations]
    link(root, work, command, library, [root / EXPORTS, *(each.object for each in compilations)])


def _version(nvcc: str) -> tuple[int, int]:
    says = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"release (\d+)\.(\d+)", says)
    return (int(found[1]), int(found[2])) if found else (0, 0)
