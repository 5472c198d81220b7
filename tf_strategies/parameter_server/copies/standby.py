"""Copies each server by itself, for asynchronous training: servers need not be at the same step.

The server is its own client for this: a session on it reads the variables by the names that the workers share, and assigns
them to variables of the next server. Nothing of it depends on the workers, whose graphs stay as they are.
"""

from __future__ import annotations

import json
import time
from typing import Dict, Optional, Sequence

from tf_strategies.native import ledger, ledger_core
from tf_strategies.parameter_server.cluster.variable_lists import Kind, describe, parse
from tf_strategies.parameter_server.copies.server_copies import ServerCopies
from tf_strategies.parameter_server.copies.variable_session import Place, VariableSession
from tf_strategies.types import JsonObject

__all__ = ["Standby"]

_STATE = "state"


class Standby(ServerCopies):
    """Copies this server to the next one, whatever the others do. Arguments as for `ServerCopies`."""

    def _needed(self) -> Sequence[int]:
        return [self._following]

    def _open(self) -> VariableSession:
        return VariableSession(self._target, [self._devices[self._own], self._devices[self._following]])

    @property
    def _copies(self) -> Place:
        return Place(self._devices[self._following], f"copy of ps {self._own}")

    def _take_over(self, session: VariableSession) -> Optional[float]:
        state = self._copies.variable(_STATE)
        found = session.texts([state])
        if not found:
            return None
        kept = json.loads(found[state])
        for name, of_ledger in kept["ledgers"].items():
            live, copies = self._live(self._own, name), self._copies
            session.assign(
                (live.variable(each, kind), copies.variable(f"{name}/{each}", kind))
                for each, kind in parse(of_ledger["variables"]).items()
            )
            session.run_now(live.device, ledger.set_step, name, of_ledger["step"])
            self._statuses[name] = {int(rank): each for rank, each in of_ledger["statuses"].items()}
        return float(kept["at"])

    def _copy(self, session: VariableSession) -> None:
        ledgers: JsonObject = {}
        at = time.time()
        names = ledger_core.names()
        for name, kinds in self._listed(session, [self._own], names)[self._own].items() if names else ():
            step = self._step(session, self._own, name)
            self._copy_variables(session, name, kinds)
            statuses = self._statuses_now(name)
            ledgers[name] = {"step": step, "statuses": statuses, "variables": describe(kinds)}
        if ledgers:
            state = json.dumps({"at": at, "ledgers": ledgers})
            session.set_texts({self._copies.variable(_STATE): state})

    def _copy_variables(self, session: VariableSession, name: str, kinds: Dict[str, Kind]) -> None:
        live, copies = self._live(self._own, name), self._copies
        session.assign(
            (copies.variable(f"{name}/{each}", kind), live.variable(each, kind))
            for each, kind in kinds.items()
        )
