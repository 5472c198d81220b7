"""Describes what one host runs, and starts it."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Mapping, Sequence

from tf_strategies.launcher.cluster_plan import TRAINING_ROLES, PlannedProcess
from tf_strategies.launcher.environment import (
    THREAD_VARIABLES,
    environments,
    fair_threads,
    share_gpus,
    visible_gpus,
)
from tf_strategies.launcher.process import LaunchedProcess
from tf_strategies.launcher.spare import Spare
from tf_strategies.launcher.supervisor import Grows, Job, Patience, Supervisor, say
from tf_strategies.launcher.task_output import OutputOptions, TaskOutputs
from tf_strategies.restarted import RESTARTED


@dataclasses.dataclass(frozen=True)
class Share:
    """The processes of one host, and how they are run.

    Attributes:
        plan: the processes.
        command: the command that each process runs.
        names: the names of the processes of all hosts, which decide the width of prefixes.
        threads: the threads of each process; None for a share of the cores.
        gpus_per_worker: the GPUs of each chief and worker; None for an equal share.
        survivor_wait: seconds, as in `Patience`.
        grace: seconds, as in `Patience`.
        log_dir: the folder for log files; None for none.
        shown: the names of the processes whose output is shown; None for all.
        colour: whether prefixes are coloured; None to look at the terminal.
        later: seconds that this launcher waits longer than `grace`, because launchers on other hosts do so.
        min_workers: the fewest chiefs and workers that go on after failures; None if none do.
        keywords: whether messages name options as the arguments of `tfs.launch`, not as those of tfs-run.
        quiet: whether it is not said what starts.
        spare: whether a process is kept ready in which a lost one starts again.
        before, after: how many workers on this host are started apart. They have the shares of its cores and GPUs that come
            before and after those of the plan.
    """

    plan: tuple[PlannedProcess, ...]
    command: tuple[str, ...]
    names: tuple[str, ...]
    threads: int | None = None
    gpus_per_worker: int | None = None
    survivor_wait: float = Patience.survivor_wait
    grace: float = Patience.grace
    log_dir: str | None = None
    shown: tuple[str, ...] | None = None
    colour: bool | None = None
    keywords: bool = False
    min_workers: int | None = None
    later: float = 0.0
    quiet: bool = False
    spare: bool = False
    before: int = 0
    after: int = 0

    def to_json(self) -> str:
        """Returns the share as one line of text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Share:
        """Returns the share that `to_json` wrote."""
        fields = json.loads(text)
        fields["plan"] = tuple(PlannedProcess(**each) for each in fields["plan"])
        for name in ("command", "names", "shown"):
            fields[name] = None if fields[name] is None else tuple(fields[name])
        return cls(**fields)

    def supervisor(self, environ: Mapping[str, str]) -> Supervisor:
        """Returns a supervisor that is ready to run, and says what it will start.

        Args:
            environ: the environment that the processes inherit.

        Raises:
            ValueError: there are not enough GPUs, or a log file cannot be opened.
        """
        envs = self.environments(environ)
        spare = Spare(self.command, envs[0]) if self.spare else None
        jobs = [self._job(planned, env, spare) for planned, env in zip(self.plan, envs)]
        supervisor = self.supervising(jobs, [planned.name for planned in self.plan], spare=spare)
        if not self.quiet:
            self.announce(environ)
        return supervisor

    def _job(self, planned: PlannedProcess, env: Mapping[str, str], spare: Spare | None) -> Job:
        start = functools.partial(LaunchedProcess, planned.name, self.command)
        start_again = start if spare is None else functools.partial(spare.take, planned.name)
        return Job(
            planned.name,
            functools.partial(start, env),
            planned.role,
            planned.address,
            functools.partial(start_again, {**env, RESTARTED: "1"}),
        )

    def supervising(
        self,
        jobs: Sequence[Job],
        names: Sequence[str],
        growth: Grows | None = None,
        spare: Spare | None = None,
    ) -> Supervisor:
        """Returns a supervisor of jobs that are run as this share says.

        Args:
            jobs: the processes.
            names: of all processes that it may start.
            growth: starts further workers; None for none.
            spare: holds a process in which jobs start again; None for none.

        Raises:
            ValueError: a log file cannot be opened.
        """
        output = OutputOptions(
            None if self.log_dir is None else Path(self.log_dir),
            None if self.shown is None else frozenset(self.shown),
            self.names,
            self.colour,
        )
        try:
            outputs = TaskOutputs(names, output)
        except OSError as error:
            raise ValueError(f"--log-dir {self.log_dir}: {error}") from None
        elsewhere = set(self.names) - set(names)
        return Supervisor(
            jobs,
            Patience(self.survivor_wait, self.grace + self.later),
            outputs,
            trains_elsewhere=any(name.startswith(TRAINING_ROLES) for name in elsewhere),
            min_workers=self.min_workers,
            growth=growth,
            spare=spare,
        )

    def environments(self, environ: Mapping[str, str]) -> list[dict[str, str]]:
        """Returns the environment of each process.

        Args:
            environ: what they inherit.

        Raises:
            ValueError: there are not enough GPUs.
        """
        end = self.before + len(self.plan)
        return environments(self._everyone, environ, self.threads, self._gpus(environ))[self.before : end]

    @property
    def _everyone(self) -> Sequence[PlannedProcess]:
        """The processes that share the cores and GPUs, of which those that are started apart are like the first."""
        return (*self.plan[:1] * self.before, *self.plan, *self.plan[:1] * self.after)

    def _gpus(self, environ: Mapping[str, str]) -> int | None:
        return share_gpus(self._everyone, visible_gpus(environ), self.gpus_per_worker)

    def announce(self, environ: Mapping[str, str]) -> None:
        """Says what will start."""
        processes, gpus = len(self.plan), self._gpus(environ)
        unset = [name for name in THREAD_VARIABLES if self.threads is not None or name not in environ]
        threads = self.threads if self.threads is not None else fair_threads(len(self._everyone))
        remark = f", {' = '.join([*unset, str(threads)])} {self._remedy('threads')}" if unset else ""
        if gpus is not None and self.gpus_per_worker is None:
            remark += f", {gpus or 'no'} {'GPU' if gpus == 1 else 'GPUs'} for each worker {self._remedy('gpus_per_worker')}"
        say(f"starting {processes} {'process' if processes == 1 else 'processes'}{remark}")

    def _remedy(self, option: str) -> str:
        named = f"{option}=" if self.keywords else f"--{option.replace('_', '-')}"
        return f"(change with {named})"
