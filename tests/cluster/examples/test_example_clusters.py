"""What the examples say of clusters: TF_CONFIG spelled out, the SLURM script, the Kubernetes manifest."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest

from tests.support.processes import REPOSITORY, ProcessGroup, ReservedPorts
from tf_strategies.cluster import Cluster
from tf_strategies.launcher import kubernetes_task
from tf_strategies.secret import SECRET_FILE

pytestmark = pytest.mark.any_line
EXAMPLES = REPOSITORY / "examples"
SLURM = EXAMPLES / "slurm"


@pytest.mark.parametrize(
    ("example", "size", "hosts"), [("06_one_process_per_gpu.py", 8, 2), ("07_one_process_per_host.py", 2, 2)]
)
def test_the_tf_config_in_an_example_is_what_tfs_run_sets(example: str, size: int, hosts: int) -> None:
    text = (EXAMPLES / example).read_text()
    written = Cluster.from_tf_config(re.search(r"TF_CONFIG='(\{.*?\}\})'", text, re.S).group(1))
    assert written.size == size
    assert len({address.split(":")[0] for address in written.addresses["worker"]}) == hosts
    command = re.search(r"tfs-run (--workers \d+ --hosts \S+ --port-base \d+)", text).group(1)
    assert planned_by_tfs_run(command.split()) == dict(written.addresses)


def planned_by_tfs_run(options: list) -> dict:
    from tf_strategies.launcher import arguments, run

    planned = run._plan(arguments.make_parser().parse_args([*options, "script.py"]), None)
    return dict(Cluster.from_tf_config(planned[0].tf_config).addresses)


# Stands in for SLURM's: starts two tasks of the step on this machine, and fails when one does.
SRUN = """#!/bin/bash
while [[ "$1" == --* ]]; do shift; done
export SLURM_STEP_NODELIST=127.0.0.1 SLURM_STEP_TASKS_PER_NODE=2
SLURM_PROCID=0 "$@" & first=$!
SLURM_PROCID=1 "$@" & second=$!
wait $first && wait $second
"""


def test_the_slurm_script_trains_example_06(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "srun").write_text(SRUN)
    (programs / "srun").chmod(0o755)
    script = SLURM / "train.sbatch"
    with two_neighbouring_ports() as base, ProcessGroup(tmp_path) as group:
        environment = {
            "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "7",
            "PORT_BASE": str(base),
        }
        command = ["bash", str(script), "examples/06_one_process_per_gpu.py", "--epochs", "3"]
        job = group.start("job", command, env=environment)
        assert job.wait(timeout=240) == 0
        for rank in range(2):
            job.wait_for_text(rf"worker {rank} of 2 on \S+: replica {rank} of 2, on CPU", timeout=5)
        assert "no secret is set" not in job.log() and not Path(".secret-7").exists()
        job.wait_for_text(r"^test accuracy 0\.[6-9]\d with 2 processes of one device each$", timeout=5)


@contextlib.contextmanager
def two_neighbouring_ports() -> Iterator[int]:
    """Holds two neighbouring ports until the block ends; gives the first."""
    for _ in range(100):
        with ReservedPorts(1) as first, socket.socket() as second:
            try:
                second.bind((first.host, first.ports[0] + 1))
            except (OSError, OverflowError):
                continue
            # Only now: before, it would share a port that somebody else holds in this way.
            second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            yield first.ports[0]
            return
    raise AssertionError("no two neighbouring ports")


def test_the_slurm_script_asks_for_a_gpu_for_each_task() -> None:
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", (SLURM / "train.sbatch").read_text(), re.M))
    assert (asked["nodes"], asked["ntasks-per-node"], asked["gpus-per-task"]) == ("2", "4", "1")


def test_the_kubernetes_manifest_is_a_tfjob_whose_container_the_operator_finds() -> None:
    job = parse_plain_yaml((EXAMPLES / "kubernetes" / "tfjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "TFJob")
    worker = job["spec"]["tfReplicaSpecs"]["Worker"]
    assert worker["restartPolicy"] == "OnFailure"
    (container,) = worker["template"]["spec"]["containers"]
    assert container["name"] == "tensorflow"
    assert container["ports"] == [{"name": "tfjob-port", "containerPort": 2222}]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 4
    (volume,) = worker["template"]["spec"]["volumes"]
    (mount,) = container["volumeMounts"]
    (variable,) = container["env"]
    assert volume["name"] == mount["name"] and volume["secret"]["defaultMode"] == 0o400
    assert variable == {"name": SECRET_FILE, "value": mount["mountPath"] + "/secret"}
    python, script = container["command"]
    assert python == "python"
    assert (REPOSITORY / script).is_file()


def test_the_elastic_job_is_one_that_kubernetes_task_understands() -> None:
    service, job = map(
        parse_plain_yaml, (EXAMPLES / "kubernetes" / "elastic_job.yaml").read_text().split("\n---\n")
    )
    assert (service["kind"], service["spec"]["clusterIP"]) == ("Service", "None")
    name = job["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": name}
    spec = job["spec"]
    assert (job["apiVersion"], job["kind"], spec["completionMode"]) == ("batch/v1", "Job", "Indexed")
    pod = spec["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"]
    (container,) = pod["containers"]
    port = container["ports"][0]["containerPort"]
    *module, _, workers, _, of_service = container["command"]
    assert module == ["python", "-m", "tf_strategies.launcher.kubernetes_task"]
    assert int(workers) == spec["completions"] == spec["parallelism"]
    _, script, *_ = container["args"]
    assert (REPOSITORY / script).is_file()
    environ = {"JOB_COMPLETION_INDEX": "3", "HOSTNAME": f"{name}-3"}
    cluster = Cluster.from_tf_config(kubernetes_task.tf_config(environ, int(workers), of_service, port))
    assert cluster.address_of(cluster.task) == f"digits-3.digits-pods:{port}"
    (mount,), (variable,) = container["volumeMounts"], container["env"]
    assert variable == {"name": SECRET_FILE, "value": mount["mountPath"] + "/secret"}


def test_the_tf_config_of_the_kubernetes_operator_is_understood() -> None:
    addresses = [f"digits-worker-{index}.default.svc:2222" for index in range(2)]
    config = {
        "cluster": {"worker": addresses},
        "task": {"type": "worker", "index": 1},
        "environment": "cloud",
    }
    cluster = Cluster.from_tf_config(json.dumps(config))
    assert (cluster.rank, cluster.size) == (1, 2)


def parse_plain_yaml(text: str) -> Any:
    """Block maps and lists, inline lists of JSON and plain scalars: all that the manifest uses. No YAML library is needed."""
    lines = [
        line.split(" #")[0].rstrip() for line in text.splitlines() if line.strip() and line.strip()[0] != "#"
    ]
    rest = [(len(line) - len(line.lstrip()), line.strip()) for line in lines]
    value = _block(rest, rest[0][0])
    assert not rest, f"not understood: {rest[0]}"
    return value


def _block(rest: list, indent: int) -> Any:
    items: Any = [] if rest[0][1].startswith("- ") else {}
    while rest and rest[0][0] == indent:
        text = rest[0][1]
        if isinstance(items, list):
            assert text.startswith("- "), text
            rest[0] = (indent + 2, text[2:].strip())
            items.append(_block(rest, indent + 2))
            continue
        key, colon, scalar = text.partition(":")
        assert colon and key not in items and (not scalar or scalar[0] == " "), text
        rest.pop(0)
        if scalar:
            items[key] = _scalar(scalar.strip())
        else:
            assert rest and rest[0][0] > indent, f"{key} has no value"
            items[key] = _block(rest, rest[0][0])
    assert not rest or rest[0][0] < indent, f"badly indented: {rest[0]}"
    return items


def _scalar(text: str) -> Any:
    if re.fullmatch(r"0[0-7]+", text):  # octal in YAML 1.1, which Kubernetes reads
        return int(text, 8)
    return json.loads(text) if re.fullmatch(r"\d+|\[.*\]|\".*\"|true|false", text) else text
