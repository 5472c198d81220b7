"""Lets the survivors of a group find one another, and decide who forms the next group."""

from tf_strategies.control_plane.roll_call.call import ARBITER_SECONDS, AskArbiter, call_the_roll
from tf_strategies.control_plane.roll_call.roll import Attempt, Roll

__all__ = ["ARBITER_SECONDS", "AskArbiter", "Attempt", "Roll", "call_the_roll"]
