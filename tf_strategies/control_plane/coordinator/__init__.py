"""The coordinator of a group, on rank 0: receives the messages of all members, and decides.

One thread runs all parts, so they need no locks. From the top down:

    coordinator        the thread: passes each message to its part, and lets the parts check their deadlines
    joining            lets members join until every rank is there
    admissions         lets tasks that have started again join while the others train
    exchanges          all-gathers of small payloads
    comparisons        compares payloads of members
    failure_reports    collects the details of a reported failure
    stop_votes         decides where all members stop a training
    stall_inspector    detects waits that cannot end
    leaving            members that leave, and how long rank 0 waits for them
    group_life         the phase of the group, and the failure that ends it
    failure_decision   decides on the cause of a failure that all members report
    roster             the list of members
"""

from tf_strategies.control_plane.coordinator.admissions import Newcomers
from tf_strategies.control_plane.coordinator.coordinator import Coordinator

__all__ = ["Coordinator", "Newcomers"]
