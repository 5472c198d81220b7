"""Collects all facts of a task."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path
from typing import Mapping

from tf_strategies.doctor.facts import environment, gpus, machine, names, network, software
from tf_strategies.doctor.plan import Plan
from tf_strategies.doctor.records import Facts
from tf_strategies.native import host

__all__ = ["collect_facts"]


def collect_facts(plan: Plan | None, environ: Mapping[str, str]) -> Facts:
    """Returns the facts of this task, after some seconds at most.

    Args:
        plan: the tasks; None if this host is examined alone.
        environ: the environment of the task.
    """
    total, free, shm_error = machine.shared_memory()
    # One task of a host is enough to ask for its GPUs.
    found, driver, gpu_error = gpus.find_gpus() if plan is None or plan.is_first_of_host else ([], "", "")
    secret, secret_error = environment.secret_of(environ)
    tls, tls_error = environment.tls_of(environ)
    mine = plan.host_of(plan.task) if plan is not None and plan.task in plan.addresses else ""
    interface, mtu, speed = network.interface(mine) if mine else ("", 0, 0)
    return Facts(
        host=host.identity(),
        host_name=socket.gethostname(),
        pid=os.getpid(),
        pid_space=str(Path("/proc/self/ns/pid").readlink()),
        versions=software.versions(),
        names=names.resolve_all([] if plan is None else map(plan.host_of, plan.addresses)),
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
        gpus=found,
        gpu_driver=driver,
        gpu_error=gpu_error,
        proxies=environment.proxies(environ),
        has_secret=bool(secret),
        secret_error=secret_error,
        tls=tls,
        tls_error=tls_error,
        interface=interface,
        mtu=mtu,
        speed=speed,
    )
