"""The picture of the layers as data: who may see whom.

The tests hold the sources and the Bazel files against it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Iterator, NamedTuple

ROOT = Path(__file__).resolve().parents[2]

# C++: a folder of ops/ and the folders it may include from, besides itself.
CORE = {
    "base": set(),
    "schedule": {"base"},
    "analysis": {"base", "schedule"},
    "reduce": {"base"},
    "compress": {"base"},
    "cuda": {"base", "compress"},
    "staging": {"base", "cuda"},
    "transport": {"base"},
    "communicator": {"base", "schedule", "reduce", "transport"},
    "channel": {"base", "transport"},
    "confine": {"base"},
    "ledger": {"base", "reduce"},
}
OPS = {
    **CORE,
    "kernels": {
        "base",
        "reduce",
        "compress",
        "cuda",
        "communicator",
        "channel",
        "confine",
        "ledger",
        "staging",
    },
    "tools": set(CORE),
    "bench": set(CORE),
}
# Programs: no part of the library.
PROGRAMS = {"tools", "bench"}
# What the shipped library does not contain.
NOT_SHIPPED = PROGRAMS | {"analysis"}
# Libraries that one layer alone may include: the start of the path in <> or "".
FOREIGN_HEADERS = {
    "kernels": ("tensorflow/", "xla/stream_executor/", "absl/", "Eigen/", "unsupported/Eigen/"),
    "cuda": ("cuda", "cub/", "thrust/", "nv/", "cooperative_groups"),
    "transport": ("ucp/", "ucs/"),
}

# Python: a part of tf_strategies and the parts it may import, besides itself.
# `tensorflow` among them: it may import TensorFlow.
_FOUNDATION = {
    "_version",
    "addresses",
    "arguments",
    "at_exit",
    "cluster",
    "errors",
    "handshake",
    "local_sgd",
    "name_lookup",
    "objects",
    "options",
    "private_file",
    "refusal_counts",
    "restarted",
    "secret",
    "slow_wire",
    "slow_worker",
    "texts",
    "tls",
    "types",
}
PARTS = {
    "_version": set(),
    "at_exit": set(),
    "errors": set(),
    "texts": set(),
    "types": {"tensorflow"},  # for type checkers only
    "addresses": set(),
    "arguments": {"errors", "options", "types"},
    "handshake": set(),
    "name_lookup": set(),
    "objects": {"types"},
    "private_file": {"errors"},
    "refusal_counts": set(),
    "restarted": set(),
    "slow_wire": {"types"},
    "slow_worker": set(),
    "secret": {"addresses", "errors", "private_file"},
    "tls": {"errors", "private_file"},
    "options": {"addresses", "errors", "types"},
    "local_sgd": {"errors", "options", "types"},
    "cluster": {"addresses", "errors", "types"},
    "other_launchers": set(),
    "resolvers": {"cluster", "errors", "other_launchers", "tensorflow"},
    "_tf": {"errors", "tensorflow", "types"},
    "control_plane": _FOUNDATION,
    "arbiter": _FOUNDATION | {"control_plane"},
    "gateway": _FOUNDATION,
    "native": _FOUNDATION | {"_tf", "arbiter", "control_plane", "tensorflow"},
    "session_graphs": _FOUNDATION | {"_tf", "tensorflow"},
    "estimator": _FOUNDATION | {"tensorflow"},
    "keras": _FOUNDATION | {"tensorflow"},
    "callbacks": _FOUNDATION | {"keras", "tensorflow", "trace"},
    "optimizers": _FOUNDATION | {"keras", "tensorflow"},
    "schedules": _FOUNDATION | {"keras", "tensorflow"},
    "large_batch": _FOUNDATION | {"_tf", "keras", "tensorflow"},
    "elastic": _FOUNDATION | {"_tf", "callbacks", "keras", "tensorflow"},
    "row_checks": _FOUNDATION | {"_tf", "tensorflow"},
    "local_steps": _FOUNDATION | {"_tf", "keras", "tensorflow"},
    "evaluator": _FOUNDATION | {"callbacks", "keras", "tensorflow"},
    "compression": _FOUNDATION | {"_tf", "native", "tensorflow"},
    "collective": _FOUNDATION
    | {
        "_tf",
        "compression",
        "control_plane",
        "elastic",
        "keras",
        "local_steps",
        "native",
        "resolvers",
        "row_checks",
        "session_graphs",
        "tensorflow",
        "trace",
    },
    "parameter_server": _FOUNDATION
    | {
        "_tf",
        "compression",
        "gateway",
        "keras",
        "native",
        "resolvers",
        "row_checks",
        "session_graphs",
        "tensorflow",
    },
    "launcher": _FOUNDATION | {"arbiter"},
    "spare_process": {"tensorflow"},
    "trace": {"native", "slow_wire", "slow_worker", "types"},
    "doctor": _FOUNDATION | {"native"},
    "__init__": _FOUNDATION
    | {
        "callbacks",
        "collective",
        "compression",
        "elastic",
        "estimator",
        "evaluator",
        "keras",
        "large_batch",
        "launcher",
        "native",
        "optimizers",
        "parameter_server",
        "schedules",
        "tensorflow",
    },
}
# Folders within a part, and what of the same part each may import, besides itself. What lies beside them may import them all.
ROOMS = {
    "control_plane": {
        "coordinator": {"agreement", "leavers", "link", "messages", "succession"},
        "roll_call": {"link", "messages", "remote_link", "server"},
    },
    "parameter_server": {
        "cluster": {"errors"},
        "copies": {"cluster"},
        "variables": set(),
        "updates": {"cluster", "variables"},
        "sessions": {"cluster", "errors", "updates", "variables"},
    },
    "collective": {
        "calls": {"exchange", "worker_group"},
        "exchange": {"worker_group"},
        "input": {"exchange", "worker_group"},
        "variables": {"worker_group"},
        "sessions": {"worker_group"},
    },
}
PRIVATE_TENSORFLOW = ("tensorflow.python", "tensorflow.core", "tensorflow.compiler")
ONLY_IMPORTER_OF_PRIVATE_TENSORFLOW = "tf_strategies/_tf/private_names.py"


class Reference(NamedTuple):
    """A place that names something: an include or an import."""

    path: Path
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.name}"


def cpp_files(folder: Path) -> list[Path]:
    """What any C++ compiler takes."""
    return sorted([*folder.rglob("*.cc"), *folder.rglob("*.h")])


def cuda_files(folder: Path) -> list[Path]:
    """What nvcc alone takes: ops/core.mk compiles it, setup.py and Bazel leave it out."""
    return sorted([*folder.rglob("*.cu"), *folder.rglob("*.cuh")])


def python_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def includes(path: Path) -> Iterator[Reference]:
    """Every #include of a file; the name keeps its brackets or quotes."""
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        found = re.match(r'\s*#\s*include\s*(<[^>]+>|"[^"]+"|\S+)', line)
        if found:
            yield Reference(path, number, found.group(1))


def imports(path: Path, *, when_run: bool = False) -> Iterator[Reference]:
    """Every module a file imports, at any depth; of `from a import b` a.b, where that is a module, else a.

    With `when_run`, those that it imports only for type checkers are left out.
    """
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    tree = ast.parse(path.read_text())
    blocks = [node for node in ast.walk(tree) if when_run and _is_for_type_checkers(node)]
    left_out = {inner for block in blocks for statement in block.body for inner in ast.walk(statement)}
    for node in ast.walk(tree):
        if node in left_out:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Reference(path, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            base += node.module.split(".") if node.module else []
            for alias in node.names:
                module = ROOT.joinpath(*base, alias.name)
                is_module = module.is_dir() or module.with_suffix(".py").exists() or base[0] == "tensorflow"
                yield Reference(path, node.lineno, ".".join([*base, alias.name] if is_module else base))
        elif _imports_by_name(node):
            yield Reference(path, node.lineno, _start_of_text(node.args[0]))


def _is_for_type_checkers(node: ast.AST) -> bool:
    """Whether this is `if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _imports_by_name(node: ast.AST) -> bool:
    """Whether this is importlib.import_module("...") or __import__("...")."""
    if not isinstance(node, ast.Call) or not node.args or not _start_of_text(node.args[0]):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return called in ("import_module", "__import__")


def _start_of_text(node: ast.AST) -> str:
    """The text of a literal, or of an f-string what is before its first value; "" of anything else."""
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[0]
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
