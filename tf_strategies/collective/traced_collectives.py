"""Remembers which collectives the functions have that were traced, so that workers can compare them."""

from __future__ import annotations

import hashlib
import re
import threading
import weakref
from typing import Callable, List

import tensorflow as tf

from tf_strategies.collective.held_place import is_thrown_away
from tf_strategies.native.instances import outermost_graph
from tf_strategies.texts import utf8

__all__ = ["TracedCollectives"]


class TracedCollectives:
    """Remembers the collectives of each outermost function, in their order, as long as the function is alive. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_graphs: weakref.WeakKeyDictionary[tf.Graph, List[str]] = weakref.WeakKeyDictionary()

    def add(self, name: str, content: Callable[[], str]) -> None:
        """Notes a collective, if it is in a function that is being traced.

        Args:
            name: its name, whose digits do not count.
            content: returns a description of what must be equal on all workers.
        """
        if not tf.inside_function() or is_thrown_away(tf.compat.v1.get_default_graph()):
            return
        described = f"{re.sub('[0-9]', '', name)} {content()}"
        with self._lock:
            self._of_graphs.setdefault(outermost_graph(), []).append(described)

    def digests(self) -> List[str]:
        """Returns a text for each different function, which is equal on workers whose function has the same collectives."""
        with self._lock:
            described = {"\n".join(each) for each in self._of_graphs.values()}
        return sorted(hashlib.blake2b(utf8(each), digest_size=16).hexdigest() for each in described)
