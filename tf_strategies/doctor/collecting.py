"""Gathers what a bug report needs in one archive, and leaves out what is secret."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Callable, Dict, Mapping

from tf_strategies.cluster import Cluster
from tf_strategies.doctor.facts import environment
from tf_strategies.doctor.facts.collect import collect_facts, with_gpus
from tf_strategies.doctor.facts.names import resolve_all
from tf_strategies.doctor.plan import Plan
from tf_strategies.doctor.programs import run_within
from tf_strategies.errors import ClusterConfigError
from tf_strategies.secret import SECRET_FILE
from tf_strategies.texts import described

__all__ = ["safe_environment", "without_secrets", "write_collection"]

_MOST_BYTES = 1 << 20  # of each file, from its end
_MOST_LOGS = 200
_SECONDS = 20.0
_REMOVED = "(removed)"
_MOST_SECRET = 4096
_RELEVANT = re.compile(
    r"(TF|TFS|KERAS|OMP|MKL|KMP|XLA|NCCL|UCX|CUDA|NVIDIA|GRPC|GLIBC|LD|SLURM|PBS|LSB|OMPI|PMI|KUBERNETES)_|PYTHON|"
    r"(no_)?(grpc|https?)_proxy$|no_proxy$|PATH$|LANG$|LC_|HOSTNAME$|VIRTUAL_ENV$",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile(
    r"secret|token|pass|pwd|(^|_)pw(_|$)|credential|key$|private|auth|cookie|jwt", re.IGNORECASE
)
_WORDS = "secret|token|passw(?:or)?d|passphrase|pwd|_pass|(?:api|access|private)[_-]?key|credential"
# In texts: "password=x", "--api-key x", "Authorization: Bearer x", and the password of a URL.
_SECRET_TEXTS = (
    re.compile(rf"(?i)([\w-]*(?:{_WORDS})[\w-]*[\"']?\s*[=:]\s*(?P<quote>[\"']))(?:(?!(?P=quote)).)+"),
    re.compile(rf"(?i)([\w-]*(?:{_WORDS})[\w-]*[\"']?\s*[=:]\s*)(?!(?:true|false|null)\b)[^\s\"'&;]+"),
    re.compile(rf"(?i)(--?[\w-]*(?:{_WORDS})[\w-]*\s+)[^\s-]\S*"),
    re.compile(r"(?i)(authorization:\s*\w+\s+)\S+"),
    re.compile(r"(//[^/\s:@]*:)\S+(?=@)"),
)
_PROC = (
    "version",
    "cmdline",
    "meminfo",
    "loadavg",
    "cpuinfo",
    "mounts",
    "self/limits",
    "self/cgroup",
    "self/status",
    "net/dev",
)
_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "addresses.txt": ("ip", "address"),
    "routes.txt": ("ip", "route"),
    "listening.txt": ("ss", "-tln"),
    "gpus.txt": ("nvidia-smi",),
    "dmesg.txt": ("dmesg",),
}


def write_collection(path: Path, log_dir: Path | None, environ: Mapping[str, str]) -> int:
    """Writes the archive, and prints what it holds. Returns the exit status.

    Args:
        path: of the archive, a .tar.gz.
        log_dir: a folder with logs of the job; None for none.
        environ: the environment.
    """
    if log_dir is not None and not log_dir.is_dir():
        print(f"tfs-doctor: error: --log-dir {log_dir} is no folder", file=sys.stderr)
        return 2
    secret = _digits_of_secret(environ)
    parts = _parts(log_dir, environ)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.fchmod(handle, 0o600)
        with os.fdopen(handle, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, text in parts.items():
                data = without_secrets(text, secret).encode("utf-8", errors="replace")
                entry = tarfile.TarInfo(f"{path.name.split('.')[0]}/{name}")
                entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
                archive.addfile(entry, io.BytesIO(data))
    except OSError as error:
        print(f"tfs-doctor: error: cannot write {path}: {error.strerror or error}", file=sys.stderr)
        return 1
    print(f"wrote {path} with {len(parts)} files: {', '.join(parts)}")
    print("values that look like passwords or tokens are removed; read it before you send it")
    return 0


def safe_environment(environ: Mapping[str, str]) -> Dict[str, str]:
    """Returns the variables that matter for a job. Those whose name sounds secret have no value."""
    # The path of the secret's file is no secret.
    return {name: _safe(name, value) for name, value in sorted(environ.items()) if _RELEVANT.match(name)}


def _safe(name: str, value: str) -> str:
    # The path of the secret's file is no secret.
    if _SECRET_NAME.search(name) and name != SECRET_FILE:
        return _REMOVED
    return environment.without_login(value) if name.lower().endswith("_proxy") else value


def _digits_of_secret(environ: Mapping[str, str]) -> str:
    """Returns the text of the secret's file, also if the job would refuse the file; "" without one."""
    try:
        with Path(environ.get(SECRET_FILE, "")).open("rb") as file:
            return file.read(_MOST_SECRET).decode(errors="replace").strip()
    except OSError:
        return ""


def without_secrets(text: str, secret: str = "") -> str:
    """Returns a text in which the secret of the cluster, and what looks like a password or token, is removed.

    Example:
        >>> without_secrets("--password=hunter2 http_proxy=http://me:hunter2@proxy:80")
        '--password=(removed) http_proxy=http://me:(removed)@proxy:80'
    """
    if secret:
        text = re.sub(re.escape(secret), _REMOVED, text, flags=re.IGNORECASE)
    for each in _SECRET_TEXTS:
        text = each.sub(rf"\g<1>{_REMOVED}", text)
    return text


def _parts(log_dir: Path | None, environ: Mapping[str, str]) -> Dict[str, str]:
    """Returns the files of the archive. A part that fails holds why."""
    made: Dict[str, Callable[[], str]] = {
        "facts.json": lambda: _facts(environ),
        "packages.txt": _packages,
        "environment.txt": lambda: "\n".join(
            f"{name}={value}" for name, value in safe_environment(environ).items()
        ),
        "TF_CONFIG.json": lambda: environ.get("TF_CONFIG", "(not set)"),
    }
    for name in _PROC:
        made[f"proc/{name.replace('/', '-')}"] = lambda name=name: _end_of(Path("/proc", name))  # type: ignore[misc]
    for name, command in _COMMANDS.items():
        made[name] = lambda command=command: _output(command)  # type: ignore[misc]
    logs = [] if log_dir is None else sorted(each for each in log_dir.rglob("*") if each.is_file())
    for log in logs[-_MOST_LOGS:]:
        made[f"logs/{log.relative_to(log_dir or '')}"] = lambda log=log: _end_of(log)  # type: ignore[misc]
    return {name: _or_reason(make) for name, make in made.items()}


def _or_reason(make: Callable[[], str]) -> str:
    try:
        return make()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return described(error, 1000)


def _facts(environ: Mapping[str, str]) -> str:
    try:
        cluster = Cluster.from_tf_config(environ=environ)
    except ClusterConfigError:
        cluster = None
    plan = None if cluster is None else Plan.of(cluster)
    names = resolve_all([] if plan is None else plan.hosts)
    facts = with_gpus(collect_facts(plan, environ, names))
    return json.dumps({"python": sys.version, **dataclasses.asdict(facts)}, indent=2)


def _packages() -> str:
    found = {(each.metadata["Name"] or "?", each.version) for each in importlib.metadata.distributions()}
    return "\n".join(
        f"{name}=={version}" for name, version in sorted(found, key=lambda each: each[0].lower())
    )


def _end_of(path: Path) -> str:
    with path.open("rb") as file:
        # Files of /proc have no size.
        if path.stat().st_size > _MOST_BYTES:
            file.seek(-_MOST_BYTES, 2)
        return file.read(_MOST_BYTES).decode(errors="replace")


def _output(command: tuple[str, ...]) -> str:
    done = run_within(command, _SECONDS)
    return (done.stdout + done.stderr)[-_MOST_BYTES:]
