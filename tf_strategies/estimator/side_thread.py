"""Work that needs eager execution while a session's graph is built, which has none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

from tf_strategies.estimator.coordinator import in_session_graph

__all__ = ["eagerly"]


def eagerly(function: Callable[[], Any]) -> Any:
    """What `function()` returns or raises. While a session's graph is built it runs on another thread, where there is none."""
    if not in_session_graph():
        return function()
    with ThreadPoolExecutor(1, thread_name_prefix="tf_strategies eager") as thread:
        return thread.submit(function).result()
