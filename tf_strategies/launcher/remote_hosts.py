"""Starts each host's share of a cluster over ssh."""

from __future__ import annotations

import functools
import json
import os
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Mapping, Sequence

from tf_strategies._version import __version__
from tf_strategies.launcher.agent import ANSWER
from tf_strategies.launcher.process import LaunchedProcess
from tf_strategies.launcher.share import Share
from tf_strategies.launcher.supervisor import Job, Patience, Supervisor, say
from tf_strategies.launcher.task_output import PlainOutputs

_CHECK_SECONDS = 60.0
LATER_SECONDS = 5.0  # the hosts end their processes first
# Without a password prompt, and gone within half a minute when the network is. A connection that others share
# would last until they have ended.
_SSH_OPTIONS = (
    "-T",
    "-oBatchMode=yes",
    "-oConnectTimeout=30",
    "-oServerAliveInterval=10",
    "-oServerAliveCountMax=3",
    "-oControlMaster=no",
)
SSH_FAILED = 255  # the status of ssh itself
_CARRIED = (
    "TF_",
    "TFS_",
    "KERAS_",
    "OMP_",
    "MKL_",
    "KMP_",
    "XLA_",
    "NCCL_",
    "UCX_",
    "CUDA_",
    "GLIBC_TUNABLES",
    "LD_",
)
_OF_PYTHON = ("PYTHONPATH", "LD_LIBRARY_PATH")  # what the interpreter on the hosts needs to start
_NOT_CARRIED = ("TF_CONFIG", "TF_STRATEGIES_SECRET_FILE", "CUDA_VISIBLE_DEVICES")


class Ssh:
    """Runs the agent of tfs-run on other hosts.

    Args:
        command: the ssh command with its options, as a shell would read it.
        python: the Python interpreter on the hosts.

    Attributes:
        cwd: the folder in which the processes run on each host.
    """

    def __init__(self, command: str, python: str) -> None:
        self.cwd = str(Path.cwd())
        self._command = shlex.split(command)
        variables = [f"{name}={_absolute(os.environ[name])}" for name in _OF_PYTHON if os.environ.get(name)]
        self._agent = shlex.join(["exec", "env", *variables, python, "-m", "tf_strategies.launcher.agent"])

    def argv(self, target: str) -> list[str]:
        """Returns the command that starts the agent on a host."""
        return [*self._command, *_SSH_OPTIONS, target, self._agent]

    def free_ports(self, counts: Mapping[str, int]) -> dict[str, list[int]]:
        """Returns free ports of each host, and checks that each host can run processes.

        Args:
            counts: the number of ports by host, as ssh knows it.

        Raises:
            ValueError: a host does not answer, or has another version or no such folder.
        """
        end = time.monotonic() + _CHECK_SECONDS
        asked: dict[str, LaunchedProcess] = {}
        try:
            for target, count in counts.items():
                asked[target] = self._ask(target, count)
            return {target: self._answer(target, process, end) for target, process in asked.items()}
        finally:
            for process in asked.values():
                process.signal(signal.SIGKILL)

    def _ask(self, target: str, count: int) -> LaunchedProcess:
        try:
            process = LaunchedProcess(target, self.argv(target), os.environ, stdin=subprocess.PIPE)
        except OSError as error:
            raise ValueError(f"cannot run {self._command[0]}: {error}") from None
        process.send(json.dumps({"cwd": self.cwd, "ports": count}).encode() + b"\n")
        return process

    def _answer(self, target: str, process: LaunchedProcess, end: float) -> list[int]:
        try:
            out, err = process.read_all(max(1.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise ValueError(f"host {target} did not answer ssh within {_CHECK_SECONDS:g} s") from None
        answers = [line for line in out.splitlines() if line.startswith(ANSWER)]
        if process.status or not answers:
            said = err.decode(errors="replace").strip().splitlines() or ["it wrote no error"]
            # Without the options, so that ssh can ask for what it misses.
            log_in = shlex.join([*self._command, target, "true"])
            again = log_in if process.status == SSH_FAILED else f"{shlex.join(self.argv(target))} </dev/null"
            raise ValueError(
                f"host {target} cannot run processes (status {process.status}): {said[-1]}; try: {again}"
            )
        answer = json.loads(answers[-1][len(ANSWER) :])
        if answer["version"] != __version__:
            raise ValueError(
                f"host {target} has tf_strategies {answer['version']}, and this host {__version__}"
            )
        return list(answer["ports"])


class RemoteShare(LaunchedProcess):
    """The processes of one host, which an ssh client stands for.

    Args:
        name: the name of the processes in messages.
        ssh: runs them.
        target: the host as ssh knows it.
        share: what the host runs.
        secret: the secret of the cluster, in hexadecimal digits; None to leave it to the hosts.
        environ: the variables that the processes get besides those of their host.
    """

    def __init__(
        self, name: str, ssh: Ssh, target: str, share: Share, secret: str | None, environ: Mapping[str, str]
    ) -> None:
        super().__init__(name, ssh.argv(target), os.environ, stdin=subprocess.PIPE)
        request: dict[str, Any] = {
            "cwd": ssh.cwd,
            "share": share.to_json(),
            "secret": secret,
            "environ": dict(environ),
        }
        self._order(json.dumps(request))

    def signal(self, number: int) -> None:
        """Sends a signal to the processes of the host. SIGKILL ends the connection, upon which the host kills them."""
        if number == signal.SIGKILL:
            super().signal(number)
        elif self.running:
            self._order(str(int(number)))

    def _order(self, line: str) -> None:
        self.send(line.encode() + b"\n")


def carried_variables(environ: Mapping[str, str], extra: Sequence[str]) -> dict[str, str]:
    """Returns the variables that processes on other hosts get from here.

    Args:
        environ: this process's environment.
        extra: further ones: "NAME" to take from `environ`, or "NAME=value".

    Raises:
        ValueError: a named variable is not set.
    """
    carried = {
        name: value
        for name, value in environ.items()
        if name.startswith(_CARRIED) and name not in _NOT_CARRIED
    }
    return {**carried, **named_variables(environ, extra)}


def named_variables(environ: Mapping[str, str], named: Sequence[str]) -> dict[str, str]:
    """Returns the variables that --env names.

    Args:
        environ: this process's environment.
        named: "NAME" to take from `environ`, or "NAME=value".

    Raises:
        ValueError: a named variable is not set, or has no name.
    """
    found = {}
    for each in named:
        name, given, value = each.partition("=")
        if not name:
            raise ValueError(f"--env {each!r} has no name")
        if not given and name not in environ:
            raise ValueError(f"--env {name}: the variable is not set")
        found[name] = value if given else environ[name]
    return found


def _absolute(path: str) -> str:
    """Returns a list of folders that means the same in another folder."""
    return os.pathsep.join(map(os.path.abspath, path.split(os.pathsep)))


def remote_supervisor(
    ssh: Ssh, shares: Mapping[str, Share], *, secret: str, environ: Mapping[str, str]
) -> Supervisor:
    """Returns a supervisor of the launchers of other hosts, and says what it will start.

    Args:
        ssh: runs them.
        shares: what each host runs, by the host as ssh knows it.
        secret: the secret of the cluster, in hexadecimal digits.
        environ: the variables that the processes get besides those of their host.
    """
    jobs = [
        Job(
            f"host {target}",
            functools.partial(RemoteShare, f"host {target}", ssh, target, share, secret, environ),
        )
        for target, share in shares.items()
    ]
    some = next(iter(shares.values()))
    say(f"starting {len(some.names)} processes on {len(shares)} hosts over ssh")
    return Supervisor(jobs, Patience(some.survivor_wait, some.grace + LATER_SECONDS), PlainOutputs())
