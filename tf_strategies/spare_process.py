"""Imports TensorFlow, waits, and then becomes a process of a job: `python -m tf_strategies.spare_process script.py`.

The environment of that process comes as one line of JSON from standard input. From there on all is as if `python script.py` had
been started in this environment. If the script changes the environment before it imports TensorFlow, the import here was made in
the wrong one: the script then starts once more, in a new interpreter.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Mapping, NoReturn, Sequence

# Those that read the environment when they are imported. To import TensorFlow is to import NumPy and Keras, too.
_NUMPY = frozenset({"numpy"})
_TENSORFLOW = frozenset({"tensorflow", "keras", "tf_keras"})


class FirstImports(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Hands packages that were imported before over to a script, when it imports them for the first time.

    Args:
        modules: the packages and their submodules, by name. They must not be in `sys.modules`.
        environ: the environment of the script.
        added: the variables of it that the imports have set.
        command: what is to run instead if the environment has changed before the import of a package.
    """

    def __init__(
        self,
        modules: Mapping[str, ModuleType],
        environ: Mapping[str, str],
        added: Mapping[str, str],
        command: Sequence[str],
    ) -> None:
        self._modules, self._environ = dict(modules), dict(environ)
        self._added, self._command = dict(added), list(command)
        self._specs: dict[str, importlib.machinery.ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns how to load a package; None for all that were not imported before."""
        if fullname not in self._modules:
            return None
        now = dict(os.environ)
        changed = sorted(key for key in {*now, *self._environ} if now.get(key) != self._environ.get(key))
        if changed:
            self._start_anew(fullname, changed)
        return importlib.util.spec_from_loader(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Returns the package. It gets another spec when this returns."""
        module = self._modules[spec.name]
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Makes known what is imported with a package, and gives it back its own spec."""
        module.__spec__ = self._specs.pop(module.__name__)
        packages = _NUMPY if module.__name__ in _NUMPY else _NUMPY | _TENSORFLOW
        for name in [name for name in self._modules if _package(name) in packages]:
            sys.modules[name] = self._modules.pop(name)

    def _start_anew(self, package: str, changed: Sequence[str]) -> NoReturn:
        """Replaces this process by the command, in the environment as it is now."""
        print(
            f"tfs-run: {Path(self._command[1]).name} changes {', '.join(changed)} before it imports {package}, so the spare "
            f"process is of no use: it starts in a new one",
            file=sys.stderr,
        )
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        environ = {name: value for name, value in os.environ.items() if self._added.get(name) != value}
        os.execve(self._command[0], self._command, environ)


def _package(module: str) -> str:
    return module.partition(".")[0]


def _import_packages() -> dict[str, str]:
    """Imports what takes long. Returns the variables of the environment that were set by it."""
    before = dict(os.environ)
    importlib.import_module("tensorflow")
    return {name: value for name, value in os.environ.items() if before.get(name) != value}


def _take_place(environ: Mapping[str, str], added: Mapping[str, str], arguments: Sequence[str]) -> None:
    """Makes this process one that was started in an environment, with nothing to read and nothing imported."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.environ.clear()
    os.environ.update({**environ, **added})
    names = [name for name in sys.modules if _package(name) in _NUMPY | _TENSORFLOW]
    modules = {name: sys.modules.pop(name) for name in names}
    sys.meta_path.insert(0, FirstImports(modules, os.environ, added, [sys.executable, *arguments]))


def main() -> None:
    """Runs the command whose arguments are those of this process."""
    _, *arguments = sys.argv
    is_module = arguments[0] == "-m"
    sys.argv = arguments[1:] if is_module else arguments
    sys.path[0] = str(Path.cwd()) if is_module else str(Path(sys.argv[0]).resolve().parent)
    added = _import_packages()
    line = sys.stdin.buffer.readline()
    if not line:
        return  # the launcher has ended
    _take_place(json.loads(line), added, arguments)
    if is_module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
