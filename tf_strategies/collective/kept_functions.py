"""Lets the functions that a worker has traced stay in use when its group changes, if they suit the next one."""

from __future__ import annotations

from typing import Callable, List, Optional

from tf_strategies.collective.held_place import HeldPlace
from tf_strategies.collective.traced_collectives import TracedCollectives
from tf_strategies.collective.worker_group import Place

__all__ = ["KeptFunctions"]


class KeptFunctions:
    """The functions that were traced since the first group, or since all were forgotten.

    All of them are made for as many workers as the largest of their groups has, also if fewer are left when they are traced. So
    they suit that number again.

    Args:
        place: returns the present place.
        of_collectives: as for `HeldPlace`.

    Attributes:
        place: gives the place of the worker to functions.
        collectives: those of the functions.
    """

    def __init__(self, place: Callable[[], Place], of_collectives: Callable[[], Place]) -> None:
        self._now, self._of_collectives = place, of_collectives
        self._former: List[int] = []  # communicators that functions have
        self._most = 0
        self.forget()

    def forget(self) -> None:
        """Forgets all functions: none is used again."""
        self.place = HeldPlace(self._now, self._of_collectives)
        self.collectives = TracedCollectives()
        self._former.clear()
        self._depend_on_others = False

    def begin(self) -> None:
        """Makes functions that are traced from now on for the workers of the present group, or of a larger one before."""
        self._most = max(self._most, self._now().size)

    def made_for(self) -> Place:
        """Returns the present rank, and the number of workers for which functions are made."""
        place = self._now()
        return Place(place.rank, max(place.size, self._most))

    def add_former(self, communicator: int, *, has_functions: bool) -> None:
        """Notes that functions may have the id of a communicator, which is closed now.

        Args:
            communicator: the id.
            has_functions: whether they have numbers that depend on others; see `InstanceNumbers`. Newcomers have other numbers.
        """
        self._former.append(communicator)
        self._depend_on_others |= has_functions

    def suiting(self, *, has_newcomers: bool) -> Optional[List[str]]:
        """Returns the digests of `collectives`; None if a function does not suit the present group.

        One does not if it holds the place of the worker, is made for fewer workers, or has numbers that newcomers do not have.
        """
        is_held = self.place.is_held or (has_newcomers and self._depend_on_others)
        suits = not is_held and self._now().size <= self._most
        return self.collectives.digests() if suits else None

    def change(self) -> List[int]:
        """Gives the present place to the functions. Returns the ids of communicators that they have."""
        self.place.change()
        return self._former
