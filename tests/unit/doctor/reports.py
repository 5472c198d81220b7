"""Reports of tasks that lack nothing, for tests to change."""

from __future__ import annotations

import dataclasses
from typing import Any

from tf_strategies.doctor.judging import View, judge
from tf_strategies.doctor.plan import Plan
from tf_strategies.doctor.records import Facts, Measured, Probe, Report, Resolution

__all__ = [
    "ADDRESSES",
    "codes",
    "facts",
    "healthy",
    "measured",
    "probe",
    "report",
    "with_facts",
    "with_probe",
]

ADDRESSES = {f"worker {index}": f"10.0.0.{index + 1}:2222" for index in range(4)}


def facts(host: str = "a", **changes: Any) -> Facts:
    values: dict[str, Any] = {
        "host": host,
        "host_name": f"node-{host}",
        "pid": 1,
        "pid_space": host,
        "versions": {
            "python": "3.11.7",
            "tf_strategies": "1.0",
            "tensorflow": "2.21.0",
            "keras": "3.15.0",
            "numpy": "2.0",
        },
        "names": {},
        "cores": [0, 1, 2, 3],
        "cores_of_host": 4,
        "quota": 0.0,
        "threads": {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"},
        "shm_total": 1 << 30,
        "shm_free": 1 << 30,
        "shm_error": "",
        "open_files": 1 << 16,
        "locked_memory": -1,
        "processes": -1,
        "is_root": False,
        "has_rdma": False,
        "gpus": [],
        "gpu_driver": "",
        "gpu_error": "",
        "proxies": {},
        "has_secret": True,
        "secret_error": "",
        "tls": "",
        "tls_error": "",
        "interface": "eth0",
        "mtu": 1500,
        "speed": 0,
    }
    return Facts(**{**values, **changes})


def probe(**changes: Any) -> Probe:
    values: dict[str, Any] = {
        "control": "ok",
        "control_text": "",
        "data": "ok",
        "data_text": "",
        "data_port": 40000,
        "seconds": 0.0001,
        "offset": 0.0,
        "large": "ok",
        "memory": "",
    }
    return Probe(**{**values, **changes})


def report(task: str, addresses: dict[str, str], **changes: Any) -> Report:
    plan = Plan(task, addresses)
    names = {plan.host_of(each): Resolution([plan.host_of(each)], "", 0.001) for each in addresses}
    values: dict[str, Any] = {
        "task": task,
        "run": task,
        "digest": plan.digest,
        "cluster": addresses,
        "listens": "ok",
        "listens_text": "",
        "data_listens": "",
        "facts": facts(host=task, names=names),
        "probes": {each: probe() for each in addresses if each != task},
        "heard": [each for each in addresses if each != task],
        "twins": {},
    }
    return Report(**{**values, **changes})


def healthy(count: int = 3, **more: Any) -> View:
    """Workers on hosts of their own, and nothing is wrong."""
    addresses = dict(list(ADDRESSES.items())[:count])
    return View(Plan("worker 0", addresses), {each: report(each, addresses) for each in addresses}, **more)


def with_facts(view: View, task: str, **changes: Any) -> View:
    old = view.reports[task]
    new = dataclasses.replace(old, facts=dataclasses.replace(old.facts, **changes))
    return dataclasses.replace(view, reports={**view.reports, task: new})


def with_probe(view: View, source: str, target: str, **changes: Any) -> View:
    old = view.reports[source]
    probes = {**old.probes, target: dataclasses.replace(old.probes[target], **changes)}
    return dataclasses.replace(
        view, reports={**view.reports, source: dataclasses.replace(old, probes=probes)}
    )


def measured(first: int, second: int, rate: float = 1e9, seconds: float = 1e-4, error: str = "") -> Measured:
    return Measured(f"worker {first}", f"worker {second}", seconds, rate, rate, error)


def codes(view: View) -> list[str]:
    return [each.code for each in judge(view)]
