"""Runs functions eagerly while the graph of a session is being built."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Callable, TypeVar

from tf_strategies.session_graphs.coordinator import in_session_graph

__all__ = ["eagerly"]

_T = TypeVar("_T")


def eagerly(function: Callable[[], _T]) -> _T:
    """Returns the result of `function()`, which runs outside of any session's graph. Raises its error.

    While such a graph is built, the function runs on another thread.
    """
    if not in_session_graph():
        return function()
    with ThreadPoolExecutor(1, thread_name_prefix="tf_strategies eager") as thread:
        return thread.submit(function).result()
