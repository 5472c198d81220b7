"""Starts each host's share of a cluster over ssh."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import json
import os
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any, Mapping, Sequence

from tf_strategies._version import __version__
from tf_strategies.launch.agent import ANSWER
from tf_strategies.launch.process import LaunchedProcess
from tf_strategies.launch.share import Share
from tf_strategies.launch.supervisor import Job, Patience, Supervisor, say
from tf_strategies.launch.task_output import PlainOutputs

_CHECK_SECONDS = 60.0
_LATER_SECONDS = 5.0  # the hosts end their processes first
# Without a password prompt, and gone within half a minute when the network is.
_SSH_OPTIONS = ("-T", "-oBatchMode=yes", "-oServerAliveInterval=10", "-oServerAliveCountMax=3")
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
_NOT_CARRIED = ("TF_CONFIG", "TF_STRATEGIES_SECRET_FILE", "CUDA_VISIBLE_DEVICES")


class Ssh:
    """Runs the agent of tfs-run on other hosts.

    Args:
        command: the ssh command with its options, as a shell would read it.
        python: the Python interpreter on the hosts.
    """

    def __init__(self, command: str, python: str) -> None:
        self._command = [*shlex.split(command), *_SSH_OPTIONS]
        path = os.environ.get("PYTHONPATH")
        variables = [f"PYTHONPATH={path}"] if path else []
        self._agent = shlex.join(["exec", "env", *variables, python, "-m", "tf_strategies.launch.agent"])

    def argv(self, target: str) -> list[str]:
        """Returns the command that starts the agent on a host."""
        return [*self._command, target, self._agent]

    def free_ports(self, counts: Mapping[str, int]) -> dict[str, list[int]]:
        """Returns free ports of each host, and checks that each host can run processes.

        Args:
            counts: the number of ports by host, as ssh knows it.

        Raises:
            ValueError: a host does not answer, or has another version or no such folder.
        """
        with concurrent.futures.ThreadPoolExecutor(len(counts)) as pool:
            return dict(zip(counts, pool.map(self._check, counts, counts.values())))

    def _check(self, target: str, count: int) -> list[int]:
        request = json.dumps({"cwd": str(Path.cwd()), "ports": count}).encode() + b"\n"
        try:
            done = subprocess.run(
                self.argv(target), input=request, capture_output=True, timeout=_CHECK_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise ValueError(f"host {target} did not answer ssh within {_CHECK_SECONDS:g} s") from None
        except OSError as error:
            raise ValueError(f"cannot run {self._command[0]}: {error}") from None
        answers = [line for line in done.stdout.splitlines() if line.startswith(ANSWER)]
        if done.returncode or not answers:
            said = done.stderr.decode(errors="replace").strip().splitlines() or ["it wrote no error"]
            raise ValueError(
                f"host {target} cannot run processes (status {done.returncode}): {said[-1]}; try: "
                f"{shlex.join(self.argv(target))} </dev/null"
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
        name: the name of the host in messages.
        argv: the ssh command.
        share: what the host runs.
        secret: the secret of the cluster, in hexadecimal digits; None to leave it to the hosts.
        environ: the variables that the processes get besides those of their host.
    """

    def __init__(
        self, name: str, argv: Sequence[str], share: Share, secret: str | None, environ: Mapping[str, str]
    ) -> None:
        super().__init__(name, argv, os.environ, stdin=subprocess.PIPE)
        request: dict[str, Any] = {
            "cwd": str(Path.cwd()),
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
        with contextlib.suppress(BrokenPipeError):  # ssh has ended, as its exit status will say
            self.stdin.write(line.encode() + b"\n")
            self.stdin.flush()


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
    for each in extra:
        name, given, value = each.partition("=")
        if not given and name not in environ:
            raise ValueError(f"--env {name}: the variable is not set")
        carried[name] = value if given else environ[name]
    return carried


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
            functools.partial(RemoteShare, f"host {target}", ssh.argv(target), share, secret, environ),
        )
        for target, share in shares.items()
    ]
    some = next(iter(shares.values()))
    say(f"starting {len(some.names)} processes on {len(shares)} hosts over ssh")
    return Supervisor(jobs, Patience(some.survivor_wait, some.grace + _LATER_SECONDS), PlainOutputs())
