"""Copies all servers at the same step, for synchronous training: when one is lost, all go back to the same step.

The first server makes the snapshots. Between two steps it lets each server keep the values of its variables, without copying
them: TensorFlow's variables share memory until one of them is written. Then each server sends what it has kept to the next one,
while training goes on. There are two snapshots in turn, so one is complete at any time.

A server that starts again finds the newest snapshot that is complete everywhere, gives all servers their variables of it, and
sets the ledgers back to its step. The workers then repeat the steps since; see repeated_steps.py.
"""

from __future__ import annotations

import collections
import json
import secrets
import time
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Set

import tensorflow as tf

from tf_strategies.cluster import Cluster
from tf_strategies.errors import BootstrapError
from tf_strategies.native import ledger, ledger_core
from tf_strategies.parameter_server.cluster.protection import Protection
from tf_strategies.parameter_server.cluster.variable_lists import (
    KEPT_STEP,
    RESTORED_STEP,
    STEP_DONE,
    Kind,
    describe,
    parse,
)
from tf_strategies.parameter_server.copies.server_copies import ServerCopies
from tf_strategies.parameter_server.copies.variable_session import Place, Stored, VariableSession
from tf_strategies.types import JsonObject

__all__ = ["Snapshots"]

_BUFFERS = 2
_STATE = "state"
_POLL_SECONDS = 0.01
_NOTICE_SECONDS = 0.03
_LOOK_EVERY_SECONDS = 0.2
_APPLIED_WITHIN_SECONDS = 30.0
# A loss costs the time to repeat the steps since the last snapshot, but no step.
_PAUSE_PER_SNAPSHOT = 4.0
_LONGEST_PAUSE_SECONDS = 3.0


class _Snapshot(NamedTuple):
    """Describes a complete snapshot of one server.

    Attributes:
        number: the number of the snapshot, from 1; the same on all servers.
        at: when it was made, in seconds since the epoch.
        steps: the step of each ledger.
        statuses: the workers that had joined each ledger, with their status.
        variables: the variables of the server, by ledger and name.
    """

    number: int
    at: float
    steps: Dict[str, int]
    statuses: Dict[str, Dict[int, str]]
    variables: Dict[str, Dict[str, Kind]]

    def text(self) -> str:
        variables = {name: describe(kinds) for name, kinds in self.variables.items()}
        return json.dumps({**self._asdict(), "variables": variables})

    @classmethod
    def parse(cls, text: bytes) -> Optional[_Snapshot]:
        """Returns None for the text of a snapshot that is not complete."""
        if not text:
            return None
        found: JsonObject = json.loads(text)
        statuses = {
            name: {int(rank): each for rank, each in ranks.items()}
            for name, ranks in found["statuses"].items()
        }
        variables = {name: parse(kinds) for name, kinds in found["variables"].items()}
        return cls(found["number"], found["at"], found["steps"], statuses, variables)


class Snapshots(ServerCopies):
    """Keeps snapshots of all servers, each on the server itself and on the next one. Arguments as for `ServerCopies`."""

    def __init__(self, server: tf.distribute.Server, cluster: Cluster, protection: Protection) -> None:
        super().__init__(server, cluster, protection)
        self._steps: Dict[str, int] = {}  # of the last snapshot, by ledger

    def start(self) -> None:
        with VariableSession(self._target, [self._devices[self._own]]) as session:
            session.set_texts({self._process(self._own): secrets.token_hex(8)})
        if self._own == 0:
            super().start()

    def _needed(self) -> Sequence[int]:
        return [index for index in range(len(self._tasks)) if index != self._own]

    def _open(self) -> VariableSession:
        return VariableSession(self._target, self._devices)

    def _process(self, server: int) -> Stored:
        """Returns the variable that identifies the process of a server. It has no value before the server is ready."""
        return Place(self._devices[server], "server").variable("process")

    def _kept(self, server: int, number: int) -> Place:
        """Returns where a server keeps the variables of a snapshot."""
        return Place(self._devices[server], f"snapshot {number % _BUFFERS}")

    def _sent(self, server: int, number: int) -> Place:
        """Returns where the next server has them."""
        following = (server + 1) % len(self._tasks)
        return Place(self._devices[following], f"snapshot {number % _BUFFERS} of ps {server}")

    def _found(self, session: VariableSession, places: Sequence[Place]) -> List[_Snapshot]:
        """Returns the complete snapshots in some places."""
        found = session.texts(place.variable(_STATE) for place in places).values()
        return [each for each in map(_Snapshot.parse, found) if each is not None]

    # --- taking over -------------------------------------------------------------------------------------------------------

    def _take_over(self, session: VariableSession) -> Optional[float]:
        own, others = self._own, self._needed()
        snapshots = {
            server: {
                each.number: each
                for each in self._found(
                    session,
                    [
                        self._sent(server, number) if server == own else self._kept(server, number)
                        for number in range(_BUFFERS)
                    ],
                )
            }
            for server in [own, *others]
        }
        common = set.intersection(*map(set, snapshots.values()))
        if not common:
            return None
        number = max(common)
        chosen = {server: of_server[number] for server, of_server in snapshots.items()}
        mine = chosen[own]
        for name, step in mine.steps.items():
            self._roll_back(session, name, step)
        session.destroy(self._made_later(session, chosen))
        session.assign(
            (self._live(server, name).variable(each, kind), source.variable(f"{name}/{each}", kind))
            for server, snapshot in chosen.items()
            for source in [self._sent(own, number) if server == own else self._kept(server, number)]
            for name, kinds in snapshot.variables.items()
            for each, kind in kinds.items()
            if server == own or kind.is_of_model  # what workers tell each other stays as it is
        )
        self._keep(session, number, {server: each.variables for server, each in chosen.items()}, [own])
        self._send(session, chosen)
        session.set_texts(
            {
                self._live(0, name).variable(RESTORED_STEP): json.dumps([secrets.token_hex(8), number, step])
                for name, step in mine.steps.items()
            }
        )
        self._statuses = mine.statuses
        return mine.at

    def _made_later(self, session: VariableSession, chosen: Dict[int, _Snapshot]) -> List[Stored]:
        """Returns the variables of models on other servers that the snapshot does not contain. Workers make them again."""
        listed = self._listed(session, self._needed(), chosen[self._own].variables)
        return [
            self._live(server, name).variable(each, kind)
            for server, of_server in listed.items()
            for name, kinds in of_server.items()
            for each, kind in kinds.items()
            if kind.is_of_model and each not in chosen[server].variables[name]
        ]

    def _roll_back(self, session: VariableSession, name: str, step: int) -> None:
        """Sets the ledgers of all servers back to a step. No update of earlier workers runs after that."""
        first, deadline = -1, time.monotonic() + _APPLIED_WITHIN_SECONDS
        for task, device in zip(self._tasks, self._devices):
            following, idle = session.run_now(device, ledger.roll_back, name, step, first)
            while not idle:
                if time.monotonic() > deadline:
                    raise BootstrapError(
                        f"{self._name} could not set {self._cluster.name_of(task)} back to step {step}: an update runs there for "
                        f"{_APPLIED_WITHIN_SECONDS:g} s. Look at its log, then start all servers and workers again"
                    )
                time.sleep(_POLL_SECONDS)
                following, idle = session.run_now(device, ledger.roll_back, name, step, first)
            first = int(following)

    # --- copying -----------------------------------------------------------------------------------------------------------

    def _pause(self, seconds: float) -> float:
        return max(super()._pause(seconds), min(_PAUSE_PER_SNAPSHOT * seconds, _LONGEST_PAUSE_SECONDS))

    def _wait_for_next(self, session: VariableSession, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._stopped.is_set() and not self._is_awaited(session):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self._stopped.wait(min(left, _LOOK_EVERY_SECONDS))

    def _is_awaited(self, session: VariableSession) -> bool:
        """Returns True if a `fit` has ended with a step that the last snapshot does not contain, and waits for the next one."""
        return any(
            int(done) > self._steps.get(name, 0)
            for name in ledger_core.names()
            for done in self._done(session, name, range(self._cluster.size))
        )

    def _done(self, session: VariableSession, name: str, ranks: Iterable[int]) -> Iterable[bytes]:
        """Returns what workers say of the steps that they have done; see RepeatedSteps."""
        return session.texts(self._live(0, name).variable(STEP_DONE.format(rank)) for rank in ranks).values()

    def _copy(self, session: VariableSession) -> None:
        names = ledger_core.names()
        processes = self._processes(session)
        if not names or len(processes) < len(self._tasks):
            return
        base = self._newest(session)
        number = base + 1
        everywhere = [place for server in range(len(self._tasks)) for place in self._places(server, number)]
        session.set_texts({place.variable(_STATE): "" for place in everywhere})
        variables = self._listed(session, range(len(self._tasks)), names)
        at = time.time()
        steps = self._keep_between_steps(session, number, variables)
        if not self._wait_until_none_is_cut_off(session, steps):
            return
        statuses = {name: self._statuses_now(name) for name in names}
        snapshots = {
            server: _Snapshot(number, at, steps, statuses, of_server)
            for server, of_server in variables.items()
        }
        if self._send(session, snapshots, processes):
            kept = {
                self._live(0, name).variable(KEPT_STEP): json.dumps([number, step])
                for name, step in steps.items()
            }
            session.set_texts(kept)
            self._steps = steps

    def _processes(self, session: VariableSession) -> Set[bytes]:
        return set(session.texts(map(self._process, range(len(self._tasks)))).values())

    def _places(self, server: int, number: int) -> Sequence[Place]:
        return self._kept(server, number), self._sent(server, number)

    def _newest(self, session: VariableSession) -> int:
        """Returns the number of the newest snapshot that is complete everywhere; 0 if there is none."""
        everywhere = [
            place
            for server in range(len(self._tasks))
            for number in range(_BUFFERS)
            for place in self._places(server, number)
        ]
        found = collections.Counter(each.number for each in self._found(session, everywhere))
        copies = 2 * len(self._tasks)
        return max((number for number, count in found.items() if count == copies), default=0)

    def _keep_between_steps(
        self, session: VariableSession, number: int, variables: Dict[int, Dict[str, Dict[str, Kind]]]
    ) -> Dict[str, int]:
        """Lets all servers keep their variables while no step is being applied. Returns the steps of the ledgers."""
        names, deadline = list(variables[0]), time.monotonic() + _APPLIED_WITHIN_SECONDS
        try:
            for name in names:
                while not ledger_core.hold(name):
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"a step is being applied for {_APPLIED_WITHIN_SECONDS:g} s")
                    time.sleep(_POLL_SECONDS)
            self._keep(session, number, variables, list(variables))
            return {name: self._step(session, 0, name) for name in names}
        finally:
            for name in names:
                ledger_core.release(name)

    def _keep(
        self,
        session: VariableSession,
        number: int,
        variables: Dict[int, Dict[str, Dict[str, Kind]]],
        servers: Sequence[int],
    ) -> None:
        session.assign(
            (
                self._kept(server, number).variable(f"{name}/{each}", kind),
                self._live(server, name).variable(each, kind),
            )
            for server in servers
            for name, kinds in variables[server].items()
            for each, kind in kinds.items()
        )

    def _send(
        self,
        session: VariableSession,
        snapshots: Dict[int, _Snapshot],
        processes: Optional[Set[bytes]] = None,
    ) -> bool:
        """Sends what servers have kept to the next ones, and notes that the snapshot is complete. Returns True if it is.

        Args:
            session: a session with all servers.
            snapshots: the snapshot of each server.
            processes: those of the servers when the snapshot was begun; it is given up if they are others now.
        """
        session.assign(
            (
                self._sent(server, snapshot.number).variable(f"{name}/{each}", kind),
                self._kept(server, snapshot.number).variable(f"{name}/{each}", kind),
            )
            for server, snapshot in snapshots.items()
            for name, kinds in snapshot.variables.items()
            for each, kind in kinds.items()
        )
        if processes is not None and processes != self._processes(session):
            return False
        session.set_texts(
            {
                place.variable(_STATE): snapshot.text()
                for server, snapshot in snapshots.items()
                for place in self._places(server, snapshot.number)
            }
        )
        return True

    def _wait_until_none_is_cut_off(self, session: VariableSession, steps: Dict[str, int]) -> bool:
        """Waits until each worker has noticed that the last step before the snapshot was applied.

        Otherwise a worker whose call is cut off could not tell whether the snapshot contains its step.
        """
        for name, step in steps.items():
            while not self._is_noticed(session, name, step):
                if self._stopped.wait(_NOTICE_SECONDS):
                    return False
        return True

    def _is_noticed(self, session: VariableSession, name: str, step: int) -> bool:
        if self._step(session, 0, name) > step:  # all have taken part in the next step
            return True
        members = enumerate(ledger_core.members(name))
        training = [rank for rank, member in members if member.status == "training"]
        return all(int(done) >= step for done in self._done(session, name, training))
