"""Collects all facts of a task."""

from __future__ import annotations

import dataclasses
import os
import resource
import socket
from pathlib import Path
from typing import Dict, Mapping

from tf_strategies.doctor.facts import environment, gpus, machine, network, software
from tf_strategies.doctor.plan import Plan
from tf_strategies.doctor.records import Facts, Resolution
from tf_strategies.native import host

__all__ = ["collect_facts", "with_gpus"]


def collect_facts(plan: Plan | None, environ: Mapping[str, str], names: Dict[str, Resolution]) -> Facts:
    """Returns the facts of this task at once, but for its GPUs, for which `with_gpus` asks.

    Args:
        plan: the tasks; None if this host is examined alone.
        environ: the environment of the task.
        names: each host of the plan, and what it resolves to.
    """
    total, free, shm_error = machine.shared_memory()
    secret, secret_error = environment.secret_of(environ)
    tls, tls_error = environment.tls_of(environ)
    mine = plan.host_of(plan.task) if plan is not None and plan.task in plan.addresses else ""
    resolves = (
        mine in names and not names[mine].error
    )  # otherwise it would be resolved again, without a limit
    interface, mtu, speed = network.interface(mine) if resolves else ("", 0, 0)
    return Facts(
        host=host.identity(),
        host_name=socket.gethostname(),
        pid=os.getpid(),
        pid_space=str(Path("/proc/self/ns/pid").readlink()),
        versions=software.versions(),
        names=names,
        cores=machine.cores(),
        cores_of_host=machine.cores_of_host(),
        quota=machine.quota(),
        threads=machine.thread_variables(environ),
        shm_total=total,
        shm_free=free,
        shm_error=shm_error,
        open_files=machine.limit(resource.RLIMIT_NOFILE),
        locked_memory=machine.limit(resource.RLIMIT_MEMLOCK),
        processes=machine.limit(resource.RLIMIT_NPROC),
        is_root=os.geteuid() == 0,
        has_rdma=any(Path("/sys/class").glob("infiniband/*")),
        gpus=[],
        gpu_driver="",
        gpu_error="",
        proxies=environment.proxies(environ),
        has_secret=bool(secret),
        secret_error=secret_error,
        tls=tls,
        tls_error=tls_error,
        interface=interface,
        mtu=mtu,
        speed=speed,
    )


def with_gpus(facts: Facts) -> Facts:
    """Returns the facts with the GPUs of this host, after some seconds at most."""
    found, driver, error = gpus.find_gpus()
    return dataclasses.replace(facts, gpus=found, gpu_driver=driver, gpu_error=error)
