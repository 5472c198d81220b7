"""tfs-doctor names faults of hosts and settings: real processes, most of them on one host."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from tests.support import certificates, confine, namespaces
from tests.support.doctors import Doctors, Found, write_secret
from tests.support.processes import REPOSITORY, ReservedPorts
from tests.support.switch import Switch
from tf_strategies.secret import SECRET_FILE
from tf_strategies.tls import TLS_FOLDER

pytestmark = [pytest.mark.any_line, pytest.mark.waits]

# A clock that is ahead by the seconds of AHEAD, for a program and what it loads.
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec* time) {
  static int (*real)(clockid_t, struct timespec*);
  if (!real) real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  const int status = real(clock, time);
  if (clock == CLOCK_REALTIME) time->tv_sec += atoi(getenv("AHEAD"));
  return status;
}
"""


@contextlib.contextmanager
def doctors_of(folder: Path, count: int, *, servers: int = 0, wait: float = 6.0) -> Iterator[Doctors]:
    """The tasks of a cluster on this host."""
    with ReservedPorts(count + servers) as ports:
        addresses = list(ports.addresses)
        with Doctors(folder, addresses[:count], servers=addresses[count:], wait=wait) as made:
            yield made


def only_error(found: Found, code: str) -> dict[str, str]:
    assert set(found.errors) == {code}, found.text
    return found.errors[code]


def only_warning(found: Found, code: str) -> dict[str, str]:
    assert not found.errors and set(found.warnings) == {code}, found.text
    assert set(found.statuses.values()) == {0}, found.statuses
    return found.warnings[code]


def test_a_port_that_another_program_has_taken(tmp_path: Path) -> None:
    with doctors_of(tmp_path, 3, wait=2.0) as doctors, socket.socket() as holder:
        address = doctors.cluster["worker"][1]
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", int(address.rpartition(":")[2])))
        holder.listen()
        doctors.start_all()
        finding = only_error(doctors.finish(), "port_taken")
    assert finding["where"] == f"worker 1 ({address})"
    assert f"taken by process {os.getpid()} (" in finding["text"]


def test_two_processes_with_one_index_on_one_host(tmp_path: Path) -> None:
    """Worker 1 is missing, because its process has another's index: that is no finding of its own."""
    with doctors_of(tmp_path, 2, wait=2.0) as doctors:
        doctors.start(0)
        doctors.start(0, name="again")
        found = {name: doctors.finish(name) for name in ("worker0", "again")}
    for each in found.values():
        finding = only_error(each, "duplicate_task")
        assert finding["where"].startswith("worker 0") and " of host " in finding["text"]


def test_a_tf_config_with_another_cluster(tmp_path: Path) -> None:
    with doctors_of(tmp_path, 3, wait=2.0) as doctors:
        addresses = doctors.cluster["worker"]
        doctors.start(0)
        doctors.start(1)
        doctors.start(2, cluster={"worker": [*addresses, "127.0.0.1:9"]})
        found = doctors.finish()
    assert {"cluster_differs"} == set(found.errors), found.text
    assert "worker 3 is at no address for worker 0, and at 127.0.0.1:9 for worker 2" in found.text


def test_addresses_in_another_order(tmp_path: Path) -> None:
    """Both listen at one address then, as each reads its TF_CONFIG; the second finds the first there."""
    with doctors_of(tmp_path, 2, wait=2.0) as doctors:
        doctors.start(0)
        doctors.group["worker0"].wait_for_text("", timeout=10)
        doctors.start(1, cluster={"worker": doctors.cluster["worker"][::-1]})
        doctors.group.wait_all(30)
        leaders = [path.stem for path in tmp_path.glob("*.json")]
        assert [set(doctors.finish(each).errors) for each in leaders] == [{"cluster_differs"}]


@pytest.mark.parametrize("secret", ["another", "none"])
def test_a_task_with_another_secret_or_none(secret: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_secret(other)
    with doctors_of(tmp_path, 3, wait=2.0) as doctors:
        doctors.start(0)
        doctors.start(1)
        doctors.start(2, env={SECRET_FILE: str(other) if secret == "another" else ""})
        finding = only_error(doctors.finish(), "secret_differs")
        assert finding["where"].startswith("worker 2")
        assert "secret_differs" in doctors.finish("worker2").errors
    texts = [path.read_text() for path in tmp_path.glob("*.json")]
    assert not any(
        path.read_text().strip() in text for text in texts for path in (other, tmp_path / "secret")
    )


def test_a_secret_that_others_can_read(tmp_path: Path) -> None:
    with doctors_of(tmp_path, 1) as doctors:
        doctors.secret.chmod(0o644)
        doctors.start(0)
        finding = only_error(doctors.finish(), "secret_unusable")
    assert "chmod 600" in finding["text"]


def test_tls_on_one_task_alone(tmp_path: Path) -> None:
    with doctors_of(tmp_path, 2) as doctors:
        doctors.start(0, env={TLS_FOLDER: certificates.make(tmp_path / "tls")})
        doctors.start(1)
        finding = only_error(doctors.finish(), "tls_differs")
    assert "worker 1 has no TLS" in finding["text"]


def test_another_tensorflow_on_one_task(tmp_path: Path) -> None:
    other = REPOSITORY / ".venv" / "tf2.15" / "bin" / "python"
    if not other.exists():
        pytest.skip("needs make setup: .venv/tf2.15")
    with doctors_of(tmp_path, 2) as doctors:
        doctors.start(0)
        doctors.start(1, python=str(other))
        finding = only_error(doctors.finish(), "versions_differ")
    assert "tensorflow is " in finding["text"] and "2.15.1 on worker 1" in finding["text"]


def test_a_library_that_is_broken(tmp_path: Path) -> None:
    """A copy of the package, whose library lacks its second half."""
    package = tmp_path / "broken" / "tf_strategies"
    shutil.copytree(
        REPOSITORY / "tf_strategies", package, ignore=shutil.ignore_patterns("__pycache__", "lib")
    )
    built = REPOSITORY / "tf_strategies" / "native" / "lib"
    for folder in built.glob("tf-*"):
        copy = package / "native" / "lib" / folder.name
        copy.mkdir(parents=True)
        shutil.copy(folder / "build_info.json", copy)
        library = (folder / "libtf_strategies_ops.so").read_bytes()
        (copy / "libtf_strategies_ops.so").write_bytes(library[: len(library) // 2])
    with doctors_of(tmp_path, 2, wait=100.0) as doctors:  # TensorFlow may load slowly on a busy machine
        doctors.start_all(env={"PYTHONPATH": str(package.parent)}, arguments=(), cwd=tmp_path)
        finding = only_error(doctors.finish(timeout=150.0), "library_broken")
    assert finding["where"].startswith("worker 0") and "was ended by SIGBUS" in finding["text"]


@pytest.mark.parametrize(("limit", "code"), [("shm", "shm_small"), ("cma", "memory_of_others_forbidden")])
def test_a_container_that_gives_less(limit: str, code: str, tmp_path: Path) -> None:
    confined = [sys.executable, "-m", "tests.support.confine", limit]
    with doctors_of(tmp_path, 2) as doctors:
        doctors.start_all(inside=confined)
        if confine.SKIPPED in doctors.group.wait_all(30).values():
            pytest.skip(doctors.group["worker0"].log())
        finding = only_warning(doctors.finish(), code)
    assert ("64 KB" if limit == "shm" else "operation not permitted") in finding["text"]


def test_few_open_files(tmp_path: Path) -> None:
    with doctors_of(tmp_path, 2) as doctors:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        doctors.start(0)
        doctors.start(1, inside=["prlimit", f"--nofile=64:{hard}"])
        finding = only_error(doctors.finish(), "open_files_few")
    assert finding["where"].startswith("worker 1") and "may open 64 files" in finding["text"]


def test_one_core_for_four_tasks(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    core = str(min(os.sched_getaffinity(0)))
    with doctors_of(tmp_path, 4) as doctors:
        doctors.start_all(inside=["taskset", "-c", core])
        finding = only_warning(doctors.finish(), "cores_pinned")
    assert "4 tasks share 1 of the" in finding["text"]


def test_more_threads_than_cores(tmp_path: Path) -> None:
    with doctors_of(tmp_path, 2) as doctors:
        doctors.start_all(env={"OMP_NUM_THREADS": "512"})
        finding = only_warning(doctors.finish(), "threads_many")
    assert "up to 512 threads each" in finding["text"]


def test_a_proxy_for_grpc_before_a_parameter_server(tmp_path: Path) -> None:
    with doctors_of(tmp_path, 1, servers=1) as doctors:
        proxy = {"grpc_proxy": "http://me:hunter2@proxy.example:3128"}
        doctors.start(0, env=proxy)
        doctors.start(0, role="ps")
        found = doctors.finish()
        finding = only_warning(found, "proxy")
    assert "grpc_proxy=http://proxy.example:3128" in finding["text"] and "hunter2" not in found.text


def test_no_free_port_for_data(tmp_path: Path) -> None:
    with doctors_of(tmp_path, 2) as doctors, socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        doctors.start_all(env={"TF_STRATEGIES_PORTS": f"{port}-{port}"})
        finding = only_error(doctors.finish(), "data_port_unavailable")
    assert "address already in use" in finding["text"]


def test_another_program_at_the_address_of_a_task(tmp_path: Path) -> None:
    with doctors_of(tmp_path, 2, wait=2.0) as doctors:
        port = doctors.cluster["worker"][1].rpartition(":")[2]
        program = f"import http.server as h; h.test(h.BaseHTTPRequestHandler, port={port}, bind='127.0.0.1')"
        doctors.group.start_python("web", "-c", program).wait_for_text("Serving", timeout=20)
        doctors.start(0)
        status = doctors.group["worker0"].wait(30)
        doctors.group["web"].kill()
        finding = only_error(doctors.finish(), "other_program")
    assert status == 1 and finding["where"].startswith("worker 1")


@pytest.mark.parametrize(("ahead", "severity"), [(5, "warning"), (7200, "error")])
def test_a_clock_that_is_ahead(ahead: int, severity: str, tmp_path: Path) -> None:
    reason = namespaces.missing()
    if reason:
        pytest.skip(reason)
    (tmp_path / "clock.c").write_text(CLOCK)
    compile_it = [
        "g++",
        "-x",
        "c",
        "-shared",
        "-fPIC",
        "-o",
        str(tmp_path / "clock.so"),
        str(tmp_path / "clock.c"),
        "-ldl",
    ]
    subprocess.run(compile_it, check=True, timeout=60)
    wrong = {"LD_PRELOAD": str(tmp_path / "clock.so"), "AHEAD": str(ahead)}
    with Switch(3) as hosts, Doctors(tmp_path, [f"{each}:22022" for each in hosts.addresses]) as doctors:
        for index in range(3):
            doctors.start(index, inside=hosts.inside(index), env=wrong if index == 1 else None)
        found = doctors.finish()
    assert {each["code"] for each in found.findings if each["severity"] != "note"} == {"clock_skew"}, (
        found.text
    )
    finding = found.of(severity)["clock_skew"]
    assert finding["where"].startswith("worker 1") and f"worker 1 is {ahead}.0 s ahead" in finding["text"]
