"""Finds what is wrong in the reports of all tasks. Every function here is pure: reports in, findings out.

view          what is known of all tasks        agreement    what must be equal: versions, clusters, secrets, clocks
starting      who is there, and at which port   hosts        what hosts lack: memory, limits, cores
connections   who reaches whom                  pairs        slow wires
"""

from __future__ import annotations

from typing import List

from tf_strategies.doctor.findings import Finding, Severity
from tf_strategies.doctor.judging import agreement, connections, hosts, pairs, starting
from tf_strategies.doctor.judging.view import View

__all__ = ["View", "judge"]


# Tasks with different clusters look for each other at the wrong places.
_CONSEQUENCES = {
    "cluster_differs": {
        "not_started",
        "not_reached",
        "wrong_task",
        "other_program",
        "port_taken",
        "address_not_here",
        "control_port_blocked",
        "data_port_blocked",
    }
}


def judge(view: View) -> List[Finding]:
    """Returns all findings, the worst first. Those that another one explains are left out."""
    found = [
        finding for part in (starting, connections, agreement, hosts, pairs) for finding in part.find(view)
    ]
    hidden = set().union(*(_CONSEQUENCES.get(each.code, set()) for each in found))
    found = [each for each in found if each.code not in hidden]
    if all(each.severity is not Severity.ERROR for each in found):
        found += starting.without_reason(view)
    return sorted(found, key=lambda each: -each.severity)
