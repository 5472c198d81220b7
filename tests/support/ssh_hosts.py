"""Hosts that run sshd: two network namespaces, and a key that opens both. Needs root, iproute2 and OpenSSH."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from tests.support import namespaces

__all__ = ["PORT", "SshHosts", "missing"]

PORT = 2222
_SECONDS = 20


def missing() -> str:
    """Why there can be no such hosts here; "" when there can."""
    for program in ("ssh", "ssh-keygen"):
        if shutil.which(program) is None:
            return f"there is no {program} (Debian: openssh-client)"
    if _sshd() is None:
        return "there is no sshd (Debian: openssh-server)"
    return namespaces.missing()


def _sshd() -> str | None:
    return shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")


class SshHosts(namespaces.TwoHosts):
    """Two hosts that reach each other, with an sshd each. Gone when the block ends.

    Attributes:
        ssh: the ssh command that may enter both.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._servers: list[subprocess.Popen] = []
        self.ssh = f"ssh -F none -p {PORT} -i {folder}/user -oStrictHostKeyChecking=yes -oUserKnownHostsFile={folder}/known"

    def run(self, index: int, *command: str) -> list[str]:
        """Returns the command that runs a command on a host."""
        return ["ip", "netns", "exec", self.name(index), *command]

    def __enter__(self) -> SshHosts:
        super().__enter__()
        try:
            self._start()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            server.terminate()
            server.wait(_SECONDS)
        super().__exit__(kind, error, trace)

    def _start(self) -> None:
        for name in ("host", "user"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._folder / name)]
            subprocess.run(command, check=True, timeout=_SECONDS)
        key = (self._folder / "host.pub").read_text()
        (self._folder / "known").write_text(
            "".join(f"[{address}]:{PORT} {key}" for address in self.addresses)
        )
        Path("/run/sshd").mkdir(exist_ok=True)
        sshd = _sshd()
        assert sshd is not None
        for index, address in enumerate(self.addresses):
            options = {
                "ListenAddress": address,
                "Port": PORT,
                "HostKey": self._folder / "host",
                "AuthorizedKeysFile": self._folder / "user.pub",
                "StrictModes": "no",
                "UsePAM": "no",
                "PidFile": "none",
                "PermitRootLogin": "prohibit-password",
            }
            listed = [f"-o{name}={value}" for name, value in options.items()]
            with (self._folder / f"sshd{index}.log").open("wb") as log:
                command = self.run(index, sshd, "-D", "-e", "-f", "/dev/null", *listed)
                self._servers.append(
                    subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
                )
        for index, address in enumerate(self.addresses):
            self._wait_until_it_listens(index, f"{address}:{PORT}")

    def _wait_until_it_listens(self, index: int, address: str) -> None:
        end = time.monotonic() + _SECONDS
        while address not in self.listening(index):
            if self._servers[index].poll() is not None or time.monotonic() > end:
                raise AssertionError((self._folder / f"sshd{index}.log").read_text())
            time.sleep(0.02)
