"""Pickles functions by value, so that other processes can run those that are defined in a notebook or a script."""

from __future__ import annotations

import collections
import importlib
import io
import marshal
from types import CodeType, ModuleType
from typing import Callable, ClassVar, Mapping

__all__ = ["Pickle", "load_pickle"]

Pickle = Callable[[object], bytes]


def load_pickle() -> Pickle:
    """Returns a function that pickles a value by cloudpickle. It adds two things.

    Code keeps the name of its file, which leads tracebacks and AutoGraph to the source. Modules of a class of their own, as
    `tensorflow.keras` is in TensorFlow 2.15, are imported by their name.

    Raises:
        ImportError: the package cloudpickle is missing.
    """
    try:
        import cloudpickle
    except ImportError:
        raise ImportError(
            "tfs.launch needs the package cloudpickle to send a function to other processes; run: pip install cloudpickle"
        ) from None

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # mypy does not see cloudpickle
        dispatch_table: ClassVar[Mapping[type, Callable[..., object]]] = collections.ChainMap(
            {CodeType: lambda code: (marshal.loads, (marshal.dumps(code),))},
            cloudpickle.CloudPickler.dispatch_table,
        )

        def reducer_override(self, value: object) -> object:
            if isinstance(value, ModuleType) and type(value) is not ModuleType:
                return importlib.import_module, (value.__name__,)
            return super().reducer_override(value)

    def dumps(value: object) -> bytes:
        file = io.BytesIO()
        Pickler(file).dump(value)
        return file.getvalue()

    return dumps
