"""Finds the TensorFlow that the ops are built against, and UCX.

A build of pip runs in an environment of its own, without the packages of the environment it builds for. Its
interpreter is the right one all the same, so the question is put to a fresh process of that interpreter,
without the isolation.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROBE = """
import importlib.util, json, os, sys
if importlib.util.find_spec("tensorflow") is None:
    sys.exit(77)
import tensorflow as tf
ucx = importlib.util.find_spec("libucx")
print("TFS-PROBE " + json.dumps({
    "tensorflow": tf.__version__,
    "git_version": tf.version.GIT_VERSION,
    "compile_flags": tf.sysconfig.get_compile_flags(),
    "link_flags": tf.sysconfig.get_link_flags(),
    "ucx": os.path.dirname(ucx.origin) if ucx else None,
}))
"""
NO_TENSORFLOW = 77

REMEDY = """tf_strategies: no TensorFlow in the environment to build for ({looked_in}).
Its operations are compiled against the TensorFlow you use, so install that first, then this package:
    {python} -m pip install tensorflow
    {python} -m pip install .
With a front end that builds in a virtual environment of its own (uv, build), switch that off:
    pip install --no-build-isolation .
or name the interpreter whose TensorFlow is meant: TF_STRATEGIES_PYTHON=/path/to/python"""


@dataclasses.dataclass(frozen=True)
class Installation:
    """What the ops are compiled and linked against."""

    tensorflow: str
    git_version: str
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    ucx: Path
    ucx_version: str


def find_installation() -> Installation:
    """Returns the TensorFlow and UCX to build against; ends the build with the remedy where there is none."""
    interpreters = _interpreters()
    for interpreter, environ in interpreters:
        found = _ask(interpreter, environ)
        if found is not None:
            ucx = _find_ucx(found["ucx"])
            return Installation(
                tensorflow=found["tensorflow"],
                git_version=found["git_version"],
                compile_flags=tuple(found["compile_flags"]),
                link_flags=tuple(found["link_flags"]),
                ucx=ucx,
                ucx_version=_ucx_version(ucx),
            )
    looked_in = ", ".join(dict.fromkeys(interpreter for interpreter, _ in interpreters))
    raise SystemExit(REMEDY.format(looked_in=looked_in, python=sys.executable))


def _interpreters() -> list[tuple[str, dict[str, str]]]:
    """Interpreters to ask, with the environment for each, best first."""
    here = dict(os.environ)
    outside = {name: value for name, value in here.items() if name not in ("PYTHONPATH", "PYTHONNOUSERSITE")}
    named = os.environ.get("TF_STRATEGIES_PYTHON")
    if named:
        return [(named, outside)]
    interpreters = [(sys.executable, here), (sys.executable, outside)]
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        python = Path(os.environ.get(variable, "/nonexistent"), "bin", "python")
        if python.exists():
            interpreters.append((str(python), outside))
    return interpreters


def _ask(interpreter: str, environ: dict[str, str]) -> dict[str, Any] | None:
    environ = {**environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    try:
        answer = subprocess.run(
            [interpreter, "-c", PROBE],
            env=environ,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    except OSError as error:
        raise SystemExit(f"tf_strategies: cannot run {interpreter}: {error.strerror}") from error
    if answer.returncode == NO_TENSORFLOW:
        return None
    for line in answer.stdout.splitlines():
        if line.startswith("TFS-PROBE "):
            found: dict[str, Any] = json.loads(line[len("TFS-PROBE ") :])
            return found
    raise SystemExit(
        f"tf_strategies: {interpreter} has a TensorFlow that cannot be imported:\n{answer.stderr.strip()}"
    )


def _find_ucx(beside_tensorflow: str | None) -> Path:
    if beside_tensorflow:
        return Path(beside_tensorflow)
    spec = importlib.util.find_spec("libucx")
    if spec is None or spec.origin is None:
        raise SystemExit(
            "tf_strategies: libucx-cu12, which carries the headers and libraries of UCX, is not installed:\n"
            f"    {sys.executable} -m pip install libucx-cu12"
        )
    return Path(spec.origin).parent


def _ucx_version(ucx: Path) -> str:
    """The version as the headers of UCX state it."""
    numbers = {}
    for line in (ucx / "include" / "ucp" / "api" / "ucp_version.h").read_text().splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == "#define" and words[1].startswith("UCP_API_"):
            numbers[words[1]] = words[2]
    return f"{numbers.get('UCP_API_MAJOR', '?')}.{numbers.get('UCP_API_MINOR', '?')}"
