"""Carries a function and its arguments to other processes of the same user on this machine.

The function is pickled by value, so that functions of a notebook or a script can be sent, too. The sources of notebook cells go
with it: tracebacks show them, and AutoGraph needs them to compile a `tf.function`.
"""

from __future__ import annotations

import inspect
import linecache
import pickle
import sys
from typing import Callable, Sequence

from tf_strategies.launcher.function_pickle import Pickle, load_pickle
from tf_strategies.types import Kwargs, Sendable

__all__ = ["pack", "unpack"]


def pack(function: Callable[..., Sendable], args: Sequence[object], kwargs: Kwargs) -> Sendable:
    """Returns a call as an object that `tf_strategies.objects` can encode.

    Raises:
        ImportError: the package cloudpickle is missing.
        TypeError: the function, a variable that it uses, or an argument cannot be pickled.
    """
    dumps = load_pickle()
    try:
        pickled = dumps((function, tuple(args), dict(kwargs)))
    except Exception as error:  # whatever a value of the user raises
        culprit = _culprit(dumps, function, args, kwargs)
        raise TypeError(
            f"tfs.launch cannot send {culprit} to other processes: {type(error).__name__}: {error}; "
            "make it inside of the function"
        ) from error
    return {"path": [each for each in sys.path if type(each) is str], "sources": _cells(), "pickled": pickled}


def unpack(call: Sendable) -> Callable[[], Sendable]:
    """Returns a function without arguments that makes the call.

    Args:
        call: the object that `pack` has made, from this user's own process: unpickling it can run any code.

    Raises:
        ImportError: a module that the function needs cannot be imported.
    """
    sys.path[:] = call["path"]
    for name, lines in call["sources"].items():
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    function, args, kwargs = pickle.loads(call["pickled"])
    return lambda: function(*args, **kwargs)


def _cells() -> dict[str, list[str]]:
    """Returns the lines of sources that are in no file, by the name that code has for them."""
    return {
        str(name): [str(line) for line in entry[2]]
        for name, entry in list(linecache.cache.items())  # other threads may add sources
        if len(entry) == 4 and entry[1] is None
    }


def _culprit(dumps: Pickle, function: Callable[..., Sendable], args: Sequence[object], kwargs: Kwargs) -> str:
    """Returns what of the call cannot be pickled, for messages."""
    named: dict[str, object] = {f"args[{index}]": value for index, value in enumerate(args)}
    named.update({f"kwargs[{name!r}]": value for name, value in kwargs.items()})
    if inspect.isfunction(function):
        used = inspect.getclosurevars(function)
        variables = {**used.globals, **used.nonlocals}
        named.update({f"the variable {name!r} of the function": value for name, value in variables.items()})
    for name, value in named.items():
        try:
            dumps(value)
        except Exception:
            return f"{name}, a {type(value).__name__},"
    return "the function"
