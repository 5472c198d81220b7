"""Builds the operations of tf_strategies against the TensorFlow that is installed.

Everything else stands in pyproject.toml. The library goes to tf_strategies/native/lib/tf-<version>/, so that
environments with different TensorFlow versions can share one checkout in editable mode. `BUILD` is a file of
Bazel, hence `.build` for what is built.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import setuptools
from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

OLDEST_SETUPTOOLS = 77  # the first that knows `license = "Apache-2.0"` of pyproject.toml
if int(re.match(r"\d+", setuptools.__version__)[0]) < OLDEST_SETUPTOOLS:
    raise SystemExit(
        f"tf_strategies: setuptools {setuptools.__version__} is too old to build this package; install "
        f"{OLDEST_SETUPTOOLS} or newer: {sys.executable} -m pip install --upgrade 'setuptools>={OLDEST_SETUPTOOLS}'"
    )

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))

import compile_cuda  # noqa: E402
import compile_ops  # noqa: E402
import find_tensorflow  # noqa: E402

LIBRARIES = Path("tf_strategies", "native", "lib")
NAMES = ("libtf_strategies_ops.so", "build_info.json")
CUDA = LIBRARIES / "cuda" / "libtf_strategies_cuda.so"


class CleanBuild(build):
    """Starts from an empty folder, so that no file of an earlier build is shipped; objects lie elsewhere."""

    def run(self) -> None:
        shutil.rmtree(Path(self.build_lib, "tf_strategies"), ignore_errors=True)
        super().run()


class BuildOps(build_ext):
    """Compiles ops/ where setuptools would compile an extension module."""

    editable_mode = False

    def run(self) -> None:
        in_place = self.inplace or self.editable_mode
        found = find_tensorflow.find_installation()
        folder = LIBRARIES / f"tf-{found.tensorflow}"
        base = ROOT if in_place else Path(self.build_lib).resolve()
        target = base / folder
        work = ROOT / ".build" / f"tf-{found.tensorflow}"
        self._built = [folder / name for name in NAMES]
        compile_ops.build_library(ROOT, work, target / NAMES[0], found, editable=bool(in_place))
        cuda = self._build_for_gpus(base)
        record = {
            "tensorflow": found.tensorflow,
            "tensorflow_git": found.git_version,
            "compiler": compile_ops.compiler_version(),
            "abi_flags": [flag for flag in found.compile_flags if not flag.startswith("-I")],
            "ucx": found.ucx_version,
            "cuda": cuda,
        }
        (target / NAMES[1]).write_text(json.dumps(record, indent=2) + "\n")

    def _build_for_gpus(self, base: Path) -> str:
        """Builds the library for GPUs where there is nvcc. Returns "CUDA 13.0", or "none: " and the reason.

        An nvcc that fails, as with a host compiler that it does not know, ends the build only if it was named.
        """
        nvcc, version = compile_cuda.find_nvcc()
        reason = version
        if nvcc is not None:
            try:
                compile_cuda.build_library(ROOT, ROOT / ".build" / "cuda", base / CUDA, nvcc, version)
            except SystemExit as error:
                if os.environ.get("TF_STRATEGIES_NVCC"):
                    raise
                print(error, file=sys.stderr, flush=True)
                reason = f"{nvcc} has failed"
            else:
                self._built.append(CUDA)
                return f"CUDA {version}"
        print(f"tf_strategies: built without code for GPUs: {reason}", flush=True)
        return f"none: {reason}"

    def get_outputs(self) -> list:
        return [str(Path(self.build_lib, path)) for path in getattr(self, "_built", [])]

    def get_output_mapping(self) -> dict:
        return {str(Path(self.build_lib, path)): str(path) for path in getattr(self, "_built", [])}

    def get_source_files(self) -> list:
        return [str(path) for path in [*compile_ops.sources(ROOT), *compile_cuda.sources(ROOT)]]


setup(
    ext_modules=[Extension("tf_strategies.native.libtf_strategies_ops", sources=[])],
    cmdclass={"build": CleanBuild, "build_ext": BuildOps},
    options={"build": {"build_base": ".build/python"}},
)
