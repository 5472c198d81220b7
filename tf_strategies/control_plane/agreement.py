"""Compares what all members must have in common, and describes the differences."""

from __future__ import annotations

import json
from typing import Any, Mapping

from tf_strategies._version import __version__
from tf_strategies.cluster import Cluster
from tf_strategies.control_plane.messages import PROTOCOL, Message

_SHOWN = 4


def terms_of(cluster: Cluster, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a member's terms: group size, every training address by task, version, and the caller's options."""
    terms: dict[str, Any] = {"group size": cluster.size}
    for task in cluster.worker_tasks:
        terms[f"the address of {task}"] = cluster.address_of(task)
    terms["tf_strategies version"] = __version__
    terms["protocol"] = PROTOCOL
    for name in sorted(options):
        terms[f"option {name}"] = options[name]
    return dict(json.loads(json.dumps(terms)))  # as the wire gives it back


def disagreement(
    first: str, first_terms: Mapping[str, Any], second: str, second_terms: Mapping[str, Any]
) -> str:
    """Names every difference between two members' terms and both values; "" when there is none."""
    absent = "not set"
    differing = [
        f"{name}: {first_terms.get(name, absent)!r} against {second_terms.get(name, absent)!r}"
        for name in [*first_terms, *(name for name in second_terms if name not in first_terms)]
        if first_terms.get(name, absent) != second_terms.get(name, absent)
    ]
    if not differing:
        return ""
    shown = differing[:_SHOWN] + ([f"and {len(differing) - _SHOWN} more"] if len(differing) > _SHOWN else [])
    return (
        f"{first} and {second} disagree about {'; '.join(shown)}: start every worker with the same "
        "TF_CONFIG cluster, options and versions"
    )


def valid_terms(hello: Message) -> Mapping[str, Any]:
    """Returns the terms in a hello; ValueError when there are none."""
    terms = hello.get("terms")
    if not isinstance(terms, dict):
        raise ValueError("a hello message must carry terms")
    return terms
