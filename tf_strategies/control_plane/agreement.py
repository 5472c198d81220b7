"""Compares the settings that must be equal on all members, and describes the differences."""

from __future__ import annotations

import json
from typing import Mapping

from tf_strategies._version import __version__
from tf_strategies.cluster import Cluster
from tf_strategies.control_plane.messages import PROTOCOL, Message

_SHOWN = 4


def terms_of(cluster: Cluster, options: Mapping[str, object], *, with_size: bool = True) -> dict[str, object]:
    """Returns the terms of a member: the settings that must be equal on all members.

    These are the group size, the address of every task that trains, the versions, and the options.

    Args:
        cluster: the cluster of the member.
        options: JSON values by name.
        with_size: whether the group size is among them.
    """
    terms: dict[str, object] = {"group size": cluster.size} if with_size else {}
    for task in cluster.worker_tasks:
        terms[f"the address of {task}"] = cluster.address_of(task)
    terms["tf_strategies version"] = __version__
    terms["protocol"] = PROTOCOL
    for name in sorted(options):
        terms[f"option {name}"] = options[name]
    return dict(json.loads(json.dumps(terms)))  # as they arrive: tuples become lists


def disagreement(
    first: str, first_terms: Mapping[str, object], second: str, second_terms: Mapping[str, object]
) -> str:
    """Describes every difference between the terms of two members, with both values.

    Args:
        first: the name of the first member.
        first_terms: its terms.
        second: the name of the second member.
        second_terms: its terms.

    Returns:
        One line, or "" if the terms are equal.
    """
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


def valid_terms(hello: Message) -> Mapping[str, object]:
    """Returns the terms in a hello message.

    Raises:
        ValueError: it has none.
    """
    terms = hello.get("terms")
    if not isinstance(terms, dict):
        raise ValueError("a hello message must carry terms")
    return terms
