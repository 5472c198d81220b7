"""tfs-run's parts without processes: plans, environments, hosts, ports, lines."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.processes import REPOSITORY
from tf_strategies.cluster import Cluster
from tf_strategies.launcher.cluster_plan import Counts, plan_cluster
from tf_strategies.launcher.environment import environments, fair_threads, share_gpus, visible_gpus
from tf_strategies.launcher.hosts import find_this_host
from tf_strategies.launcher.output import LineWriter, prefixes, write_line
from tf_strategies.launcher.ports import ReservedPorts

COUNTS = st.builds(Counts, st.integers(1, 6), st.booleans(), st.integers(0, 3), st.booleans())


def plan_on(counts, hosts):
    return plan_cluster(counts, hosts, lambda host, position: 2000 + position)


@given(COUNTS, st.integers(1, 4))
def test_every_planned_tf_config_is_valid_and_names_its_task(counts, hosts):
    hosts = [f"host{number}" for number in range(min(hosts, counts.workers + counts.chief))]
    plan = plan_on(counts, hosts)
    for planned in plan:
        cluster = Cluster.from_tf_config(planned.tf_config)
        assert (cluster.task.role, cluster.task.index) == (planned.role, planned.index)
        assert cluster.size == counts.workers + counts.chief
        if planned.address:
            assert cluster.address_of(cluster.task) == planned.address
            assert planned.address.startswith(planned.host + ":")
    assert len({planned.name for planned in plan}) == len(plan)


@given(COUNTS, st.integers(1, 4))
def test_ranks_lie_over_the_hosts_in_equal_blocks(counts, hosts):
    hosts = [f"host{number}" for number in range(min(hosts, counts.workers + counts.chief))]
    places = [planned.host for planned in plan_on(counts, hosts) if planned.trains]
    assert places == sorted(places)
    shares = [places.count(host) for host in hosts]
    assert max(shares) - min(shares) <= 1


def test_an_ipv6_host_is_bracketed():
    addresses = json.loads(plan_on(Counts(2), ["::1"])[0].tf_config)["cluster"]["worker"]
    assert addresses == ["[::1]:2000", "[::1]:2001"]


def test_the_evaluator_is_not_in_the_cluster():
    planned = plan_on(Counts(1, evaluator=True), ["a"])[-1]
    config = json.loads(planned.tf_config)
    assert config == {"cluster": {"worker": ["a:2000"]}, "task": {"type": "evaluator", "index": 0}}
    assert planned.address == ""


def test_a_host_without_a_process_is_refused():
    with pytest.raises(
        ValueError, match="host c has no process to run: there are 2 training processes for 3 hosts"
    ):
        plan_on(Counts(2), ["a", "b", "c"])


def test_cores_are_divided_and_never_less_than_one():
    cores = len(os.sched_getaffinity(0))
    assert fair_threads(1) == cores
    assert fair_threads(10 * cores) == 1


def test_environments_keep_what_is_set():
    env = environments(plan_on(Counts(1), ["a"]), {"OMP_NUM_THREADS": "9", "X": "y"}, None, None)[0]
    assert (env["OMP_NUM_THREADS"], env["X"]) == ("9", "y")
    assert "CUDA_VISIBLE_DEVICES" not in env


def test_visible_gpus_are_those_named():
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "3, GPU-ab ,"}) == ["3", "GPU-ab"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}) == []
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "-1"}) == []


def test_too_few_gpus_are_refused_with_both_counts():
    with pytest.raises(ValueError, match="--gpus-per-worker 2 needs 6 GPUs on this host, which has 5"):
        environments(plan_on(Counts(3), ["a"]), {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4"}, None, 2)


@pytest.mark.parametrize(
    ("workers", "servers", "gpus", "asked", "expected"),
    [
        (2, 0, 4, None, 2),
        (3, 0, 4, None, 1),
        (3, 0, 1, None, 0),  # two processes that see one GPU would each take its memory
        (1, 0, 4, None, None),  # alone: a replica for each GPU
        (1, 1, 4, None, 4),  # the server gets none
        (2, 0, 0, None, None),
        (2, 0, 4, 1, 1),
        (2, 0, 4, 0, 0),
    ],
)
def test_gpus_are_shared_out_by_default(workers, servers, gpus, asked, expected):
    plan = plan_on(Counts(workers, ps=servers), ["a"])
    assert share_gpus(plan, [str(gpu) for gpu in range(gpus)], asked) == expected


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", socket.gethostname()])
def test_this_host_is_found_by_name_and_address(host):
    assert find_this_host(["192.0.2.77", host]) == host


def test_no_or_several_hosts_of_this_machine_must_be_told_apart():
    with pytest.raises(ValueError, match=r"none of the hosts 192\.0\.2\.77 .* --this-host"):
        find_this_host(["192.0.2.77"])
    with pytest.raises(ValueError, match=r"more than one \(localhost, 127\.0\.0\.1\)"):
        find_this_host(["localhost", "127.0.0.1"])


def test_a_reserved_port_is_given_to_nobody_else_but_can_be_listened_on():
    with ReservedPorts(20) as first, ReservedPorts(20) as second:
        assert len({*first.ports, *second.ports}) == 40
        with socket.socket() as server, socket.socket() as another:
            for each in (server, another):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((first.host, first.ports[0]))
            server.listen()
            with pytest.raises(OSError, match="in use"):
                another.bind((first.host, first.ports[0]))


def test_prefixes_have_one_width():
    assert prefixes(["chief 0", "worker 10"], colour=False) == [b"chief 0   | ", b"worker 10 | "]
    coloured = prefixes(["a", "b"], colour=True)
    assert coloured[0].startswith(b"\x1b[36m")
    assert coloured[0] != coloured[1]


def written(*pieces: bytes) -> bytes:
    with tempfile.TemporaryFile() as file:
        lines = LineWriter(functools.partial(write_line, file.fileno(), b"p | "))
        for piece in pieces:
            lines.feed(piece)
        lines.finish()
        file.seek(0)
        return file.read()


@given(st.lists(st.binary(max_size=50).map(lambda data: data.replace(b"\r", b"")), max_size=20))
def test_lines_come_out_whole_however_they_were_cut(pieces):
    lines = b"".join(pieces).split(b"\n")
    if not lines[-1]:
        lines.pop()
    assert written(*pieces) == b"".join(b"p | " + line + b"\n" for line in lines)


def test_of_a_progress_bar_the_last_state_is_shown():
    assert written(b"step 1\rstep 2\r", b"step 3\r\n") == b"p | step 3\n"


def test_an_endless_line_is_cut():
    assert written(b"x" * 70_000) == b"p | " + b"x" * 70_000 + b"\n"


def test_the_launcher_and_the_control_plane_load_no_tensorflow():
    modules = "sys, tf_strategies.launcher.run, tf_strategies.control_plane"
    code = f"import {modules}; sys.exit('tensorflow' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, timeout=60, check=False).returncode == 0
    )
