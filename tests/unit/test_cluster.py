"""TF_CONFIG: what it means, and what is refused with which words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_strategies.cluster import ROLES, Cluster, Task
from tf_strategies.errors import ClusterConfigError

FULL = {
    "chief": ["10.0.0.1:2222"],
    "worker": ["10.0.0.2:2222", "10.0.0.3:2222"],
    "ps": ["10.0.0.4:2222"],
}


def config(cluster=None, role="worker", index=0, **extra):
    cluster = FULL if cluster is None else cluster
    return json.dumps({"cluster": cluster, "task": {"type": role, "index": index}, **extra})


def parse(text):
    return Cluster.from_tf_config(text)


@pytest.mark.parametrize(
    "text", ["", "  \n", "{}", '{"task": {"type": "worker", "index": 0}}', '{"cluster": {}}']
)
def test_without_a_cluster_there_is_none(text):
    assert parse(text) is None


def test_reads_the_environment_when_no_text_is_given():
    assert Cluster.from_tf_config(environ={}) is None
    assert Cluster.from_tf_config(environ={"TF_CONFIG": config(index=1)}).task == Task("worker", 1)


def test_ranks_are_the_chief_and_then_the_workers():
    cluster = parse(config(index=1))
    assert cluster.worker_tasks == (Task("chief", 0), Task("worker", 0), Task("worker", 1))
    assert (cluster.rank, cluster.size) == (2, 3)
    assert parse(config(role="chief")).rank == 0


@pytest.mark.parametrize("role", ["ps", "evaluator"])
def test_servers_and_evaluator_have_no_rank(role):
    assert parse(config(role=role)).rank is None


def test_names_carry_the_address():
    cluster = parse(config(role="evaluator"))
    assert cluster.name_of(Task("worker", 1)) == "worker 1 (10.0.0.3:2222)"
    assert cluster.name_of(Task("chief", 0)) == "chief 0 (10.0.0.1:2222)"
    assert cluster.name_of(cluster.task) == "evaluator 0"
    assert cluster.address_of(Task("ps", 0)) == "10.0.0.4:2222"
    with pytest.raises(KeyError, match="evaluator 0"):
        cluster.address_of(cluster.task)


def test_an_ipv6_address_is_kept_as_spelled():
    cluster = parse(config({"worker": ["[::1]:2222", "[::1]:2223"]}))
    assert cluster.addresses == {"worker": ("[::1]:2222", "[::1]:2223")}


def test_other_keys_are_ignored():
    assert parse(config(environment="cloud", job={"scale": 1})).size == 3


def test_is_immutable_and_hashable():
    cluster = parse(config())
    with pytest.raises(AttributeError):
        cluster.task = Task("worker", 1)
    assert len({cluster, parse(config())}) == 1


W2 = {"worker": ["a:1", "b:1"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON: .* line 1, column 2; write"),
        ("worker", "is not JSON"),
        ("[" * 100_000, "nested too deep"),
        ("1" * 10_000, "is not JSON that can be read|is 1111"),
        ("[]", r"is \[\]; write an object"),
        ('"text"', 'is "text"; write an object'),
        ('{"cluster": {"worker": ["a:1"], "worker": ["b:1"]}}', 'has the key "worker" twice'),
        ('{"cluster": null}', '"cluster" is null; write an object of lists'),
        (config(["a:1"]), r'"cluster" is \["a:1"\]'),
        (config({"master": ["a:1"]}), 'has the role "master".*rename it to "chief"'),
        (config({"wroker": ["a:1"]}), 'has the role "wroker", which is unknown; use chief, worker'),
        (config({"worker": "a:1"}), 'gives worker "a:1"; write a list'),
        (config({"worker": {"0": "a:1"}}), "gives worker .*; write a list"),
        (config({"worker": []}), "gives worker an empty list; list its addresses"),
        (config({"worker": ["a:1"], "ps": []}), "gives ps an empty list.*leave ps out"),
        (config({"worker": [1]}), 'address of worker 0 is 1; write it as "host:port"'),
        (config({"worker": [None]}), "address of worker 0 is null"),
        (config({"worker": ["a:1", "b"]}), 'address of worker 1 is "b": it has no port'),
        (config({"worker": ["a:0"]}), "between 1 and 65535"),
        (config({"worker": ["a:99999"]}), "between 1 and 65535"),
        (config({"worker": ["a:x"]}), "port is not a number"),
        (config({"worker": [":1"]}), "it has no host"),
        (config({"worker": ["::1:1"]}), "must stand in brackets"),
        (config({"worker": ["http://a:1"]}), "no scheme"),
        (config({"worker": ["a:1", "a:1"]}), 'worker 0 and worker 1 have the same address "a:1"; give each'),
        (config({"worker": ["a:1"], "ps": ["A:01"]}), "worker 0 and ps 0 have the same address"),
        (config({"worker": ["[::1]:1", "[0::1]:1"]}), "worker 0 and worker 1 have the same address"),
        (config({"chief": ["a:1", "b:1"]}, "chief"), "lists 2 chiefs; keep one"),
        (config({"ps": ["a:1"]}, "ps"), "has only ps; list at least one"),
        (json.dumps({"cluster": W2}), 'has no "task"; add'),
        (json.dumps({"cluster": W2, "task": 1}), '"task" is 1; write'),
        (json.dumps({"cluster": W2, "task": {"index": 0}}), '"task" has no "type"; add'),
        (json.dumps({"cluster": W2, "task": {"type": "worker"}}), '"task" has no "index"; add'),
        (config(W2, role=3), '"type" is 3; write one of'),
        (config(W2, role="master"), '"type" is "master".*rename'),
        (config(W2, role="boss"), '"type" is "boss", which is unknown'),
        (config(W2, index="1"), '"index" is "1"; write a whole number from 0, without quotes'),
        (config(W2, index=True), '"index" is true; write a whole number'),
        (config(W2, index=1.5), '"index" is 1.5; write a whole number'),
        (config(W2, index=None), '"index" is null'),
        (config(W2, index=2), "is worker 2, but the cluster has 2 of that role; use an index from 0 to 1"),
        (config(W2, index=-1), "is worker -1, but the cluster has 2"),
        (config(W2, role="chief"), "is chief 0, but the cluster has no chief; list it"),
        (config(W2, role="ps"), "is ps 0, but the cluster has no ps"),
        (config(W2, role="evaluator", index=1), "is evaluator 1, but the cluster has 1 of that role"),
    ],
)
def test_refuses_what_is_wrong_in_one_line(text, message):
    with pytest.raises(ClusterConfigError, match=message) as caught:
        parse(text)
    line = str(caught.value)
    assert line.startswith("TF_CONFIG ")
    assert line.isascii()
    assert line.isprintable()
    assert len(line) < 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
ADDRESSES = st.text(max_size=20) | st.from_regex(r"(\[::[0-9a-f]\]|[a-z]{1,3}):[0-9]{1,6}", fullmatch=True)
ROLE = st.sampled_from([*ROLES, "master", "worker ", ""]) | st.text(max_size=5)
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "cluster": st.dictionaries(ROLE, st.lists(ADDRESSES | JSON, max_size=3) | JSON, max_size=3) | JSON,
        "task": st.fixed_dictionaries({}, optional={"type": ROLE | JSON, "index": st.integers(-1, 3) | JSON})
        | JSON,
    },
)


@given(st.one_of(JSON, NEARLY).map(json.dumps) | st.text())
def test_any_text_gives_a_cluster_or_one_line(text):
    try:
        cluster = parse(text)
    except ClusterConfigError as error:
        assert str(error).isprintable()
        assert str(error).isascii()
    else:
        assert cluster is None or cluster.size >= 1


HOST_PORTS = st.tuples(st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True), st.integers(1, 65535))


@given(st.data(), st.lists(HOST_PORTS, min_size=2, max_size=8, unique=True), st.booleans())
def test_any_valid_cluster_is_read_back(data, places, has_chief):
    addresses = [f"{host}:{port}" for host, port in places]
    cluster = {"chief": addresses[:1], "worker": addresses[1:]} if has_chief else {"worker": addresses}
    index = data.draw(st.integers(0, len(cluster["worker"]) - 1))
    read = parse(config(cluster, index=index))
    assert {role: list(listed) for role, listed in read.addresses.items()} == cluster
    assert [read.address_of(task) for task in read.worker_tasks] == addresses
    assert read.worker_tasks[read.rank] == Task("worker", index)


def test_a_cluster_takes_further_workers_and_gives_them_up():
    cluster = parse(config({"chief": ["a:1"], "worker": ["b:1"]}, index=0))
    longer = cluster.with_workers(["b:1", "c:1", "d:1"])
    assert longer.worker_addresses == ("b:1", "c:1", "d:1")
    assert longer.worker_tasks == (Task("chief", 0), Task("worker", 0))  # the others do not train yet
    assert longer.whole.size == 4
    assert longer.with_workers(["b:1"]) == cluster
    assert longer.without_workers().worker_tasks == (Task("chief", 0),)


@pytest.mark.parametrize(
    ("listed", "reason"),
    [
        (["x:1", "c:1"], 'worker 0 has the address "x:1" there, but "b:1" here'),
        (["b:1", "a:1"], 'chief 0 and worker 1 have the same address "a:1"'),
        (["b:1", "nowhere"], "the address of worker 1"),
    ],
)
def test_a_list_of_workers_that_contradicts_a_cluster_is_refused(listed, reason):
    with pytest.raises(ClusterConfigError, match=reason):
        parse(config({"chief": ["a:1"], "worker": ["b:1"]}, index=0)).with_workers(listed)
