"""Rank 0's side of a group: takes the messages of all members, and decides.

One thread runs all of it, so nothing here has a lock. From the top down:

    coordinator        the thread: hands each message to the part it is for, and lets each part look at the time
    joining            hellos, until every rank has joined
    exchanges          all-gathers of small payloads
    comparisons        what members say about the same thing
    failure_reports    what members report, until there is a verdict
    stop_votes         where all stop when one wants to
    stall_inspector    waits that cannot end
    leaving            members that leave, and how long rank 0 stays for them
    group_life         the phase of the group, and the failure that ends it
    verdict, roster    plain state
"""

from tf_strategies.control_plane.coordinator.coordinator import Coordinator

__all__ = ["Coordinator"]
