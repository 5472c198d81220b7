"""Knows the machines that workers can start on, and how many each takes."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from types import TracebackType
from typing import Mapping, Protocol, Sequence

from tf_strategies.addresses import is_loopback, join_address
from tf_strategies.launcher.cluster_plan import LOCAL_HOST
from tf_strategies.launcher.host_lists import Slots
from tf_strategies.launcher.hosts import is_here
from tf_strategies.launcher.ports import ReservedPorts
from tf_strategies.launcher.supervisor import say

__all__ = ["AsksForPorts", "Machine", "Machines"]

_AGAIN_SECONDS = 30.0


class AsksForPorts(Protocol):
    """Asks other machines for free ports."""

    def free_ports(self, counts: Mapping[str, int]) -> dict[str, list[int]]:
        """Returns free ports of each machine, or raises ValueError if one cannot run workers."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine that workers can start on.

    Attributes:
        target: the machine as ssh knows it; "" for this one.
        host: its name or address in TF_CONFIG.
        most: the number of workers between which its cores and GPUs are divided.
        ports: a port for each of these.
    """

    target: str
    host: str
    most: int
    ports: tuple[int, ...]

    def address(self, position: int) -> str:
        """Returns the "host:port" of a worker, from the number of workers before it on this machine."""
        return join_address(self.host, self.ports[position])


class Machines:
    """Finds out which of the hosts that are named can run workers. It is a context, in which ports of this machine are reserved.

    Other machines are asked on threads of their own. One that cannot run workers is asked again later.

    Args:
        most: the number of workers that may run at once.
        ssh: asks other machines.
        why_alone: why workers can start on this machine alone; "" if others can run some, too.
        port_base: the first port on each machine; None for free ports.
    """

    def __init__(
        self, most: int, ssh: AsksForPorts, *, why_alone: str = "", port_base: int | None = None
    ) -> None:
        self._most, self._ssh, self._why_alone, self._base = most, ssh, why_alone, port_base
        self._is_here: dict[str, bool] = {}
        self._here: Machine | None = None
        self._others: dict[str, Machine] = {}  # that have answered, by host
        self._doubted: set[str] = set()  # those of them that were lost since
        self._next_try: dict[str, float] = {}
        self._told: dict[str, str] = {}
        self._asking: list[threading.Thread] = []
        self._held = contextlib.ExitStack()

    def __enter__(self) -> Machines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def begin(self, named: Sequence[Slots]) -> dict[Machine, int]:
        """Does the same as `places` for the first hosts, after all of them have answered or failed."""
        self.places(named)
        for thread in self._asking:
            thread.join()
        return self.places(named)

    def places(self, named: Sequence[Slots]) -> dict[Machine, int]:
        """Returns the machines that can run workers now, and how many each takes, in the order in which they are named.

        A machine takes no more than the slots with which it was first named; this one, if it is named localhost, `most`.

        Args:
            named: the hosts and their slots.
        """
        named = [each for each in named if each.workers]
        here = [each for each in named if self._runs_here(each.host)]
        others = [each for each in named if not self._runs_here(each.host)]
        found: dict[Machine, int] = {}
        for each in named:
            machine = self._this_machine(here, bool(others)) if each in here else self._other(each)
            if machine is not None:
                found[machine] = min(machine.most, found.get(machine, 0) + each.workers)
        return found

    def usable(self, machine: Machine) -> bool:
        """Returns False for a machine that was lost, and has not answered since."""
        return machine.host not in self._doubted

    def doubt(self, machine: Machine) -> None:
        """Notes that the connection to a machine has failed. It is asked again before it runs workers."""
        self._next_try[machine.host] = 0.0
        self._doubted.add(machine.host)

    def _runs_here(self, host: str) -> bool:
        if host not in self._is_here:
            self._is_here[host] = is_here(host)
        return self._is_here[host]

    def _this_machine(self, here: Sequence[Slots], has_others: bool) -> Machine | None:
        if self._here is None:
            known = [each.host for each in here if not _is_loopback(each.host)]
            if not known and (has_others or self._others) and not self._why_alone:
                self._tell(
                    here[0].host, "other hosts cannot reach it; write a name or address that they know"
                )
                return None
            slots = sum(each.workers for each in here)
            most = slots if known and not self._why_alone else self._most
            ports = self._ports_of_base(most)
            if not ports:
                reserved = ReservedPorts(most, "0.0.0.0" if known else LOCAL_HOST)
                ports = self._held.enter_context(reserved).ports
            self._here = Machine("", [*known, LOCAL_HOST][0], most, ports)
        return self._here

    def _ports_of_base(self, count: int) -> tuple[int, ...]:
        return () if self._base is None else tuple(range(self._base, self._base + count))

    def _other(self, slots: Slots) -> Machine | None:
        """Returns a machine that has answered. Others are asked, if it is time to."""
        host, machine = slots.host, self._others.get(slots.host)
        if machine is not None and host not in self._doubted:
            if machine.target == slots.target:
                return machine
            self._tell(slots.target, f"it is the same host as {machine.target}; name it once")
        elif time.monotonic() >= self._next_try.get(host, 0.0):
            if self._why_alone or (self._here is not None and _is_loopback(self._here.host)):
                reason = (
                    self._why_alone
                    or f"the first workers listen on {LOCAL_HOST}; name this machine as the others know it"
                )
                self._tell(host, f"it is not this machine, and {reason}")
                return None
            self._next_try[host] = float("inf")
            self._asking = [thread for thread in self._asking if thread.is_alive()]
            name = f"tfs-run asks {slots.target}"
            self._asking.append(threading.Thread(target=self._ask, args=(slots,), name=name, daemon=True))
            self._asking[-1].start()
        return None

    def _ask(self, slots: Slots) -> None:
        known = self._others.get(slots.host)
        ports = self._ports_of_base(slots.workers) if known is None else known.ports
        try:
            found = self._ssh.free_ports({slots.target: 0 if ports else slots.workers})
        except (ValueError, OSError) as error:
            self._tell(slots.host, str(error))
            self._next_try[slots.host] = time.monotonic() + _AGAIN_SECONDS
            return
        if known is None:
            ports = ports or tuple(found[slots.target])
            self._others[slots.host] = Machine(slots.target, slots.host, slots.workers, ports)
        self._doubted.discard(slots.host)
        self._told.pop(slots.host, None)

    def _tell(self, host: str, reason: str) -> None:
        if self._told.get(host) != reason:
            self._told[host] = reason
            say(f"{host} runs no workers: {reason}")


def _is_loopback(host: str) -> bool:
    return is_loopback(join_address(host, 1))
