"""Parses and checks the cluster that TF_CONFIG or a resolver describes. Imports no TensorFlow."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Iterable, Mapping, Sequence

from tf_strategies import addresses as _addresses
from tf_strategies.errors import ClusterConfigError
from tf_strategies.types import ClusterResolver

ROLES = ("chief", "worker", "ps", "evaluator")
_TRAINING_ROLES = ("chief", "worker")
_VARIABLE = "TF_CONFIG"


@dataclasses.dataclass(frozen=True)
class Task:
    """One process of a cluster: its role, one of `ROLES`, and its index within the role."""

    role: str
    index: int

    def __str__(self) -> str:
        return f"{self.role} {self.index}"


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Lists the tasks of a training job, and says which of them is this process.

    Make it with `from_tf_config` or `from_resolver`, which check what they read. The chief and the workers form the group that
    trains. `worker_tasks` lists them, the chief first; a task's position in this list is its rank. An evaluator does not need
    an address.

    Attributes:
        addresses: role -> the "host:port" of each index, as TF_CONFIG spells them.
        task: this process.
        absent: the tasks that were lost, and that the others train without.

    Example:
        >>> config = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'
        >>> cluster = tfs.Cluster.from_tf_config(config)
        >>> cluster.rank, cluster.size
        (1, 2)
    """

    addresses: Mapping[str, tuple[str, ...]] = dataclasses.field(hash=False)
    task: Task
    absent: frozenset[Task] = frozenset()

    @classmethod
    def from_tf_config(
        cls, text: str | None = None, *, environ: Mapping[str, str] = os.environ
    ) -> Cluster | None:
        """Reads TF_CONFIG.

        Args:
            text: the JSON; by default the environment variable TF_CONFIG.
            environ: the environment to read the variable from.

        Returns:
            The cluster, or None if TF_CONFIG is unset or empty, or has no cluster.

        Raises:
            ClusterConfigError: TF_CONFIG is wrong. The message says what was found and how to correct it.

        Example:
            >>> config = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'
            >>> Cluster.from_tf_config(config).rank
            1
        """
        if text is None:
            text = environ.get(_VARIABLE, "")
        if not text.strip():
            return None
        config = _parse_object(text)
        if "cluster" not in config or config["cluster"] == {}:
            return None
        cluster = _parse_cluster(config["cluster"])
        return cls(addresses=cluster, task=_parse_task(config, cluster))

    @classmethod
    def from_resolver(cls, resolver: ClusterResolver) -> Cluster | None:
        """Reads a `tf.distribute.cluster_resolver.ClusterResolver`.

        Args:
            resolver: with `task_type` and `task_id`. A KubernetesClusterResolver does not know them: set these attributes.

        Returns:
            The cluster, or None if the resolver's cluster is empty.

        Raises:
            ClusterConfigError: the resolver does not say which task this is, or describes a cluster that cannot be used.

        Example:
            >>> resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            ...     tf.train.ClusterSpec({"worker": ["a:1", "b:1"]}), task_type="worker", task_id=1
            ... )
            >>> tfs.Cluster.from_resolver(resolver).rank
            1
        """
        kind = type(resolver).__name__
        # A SlurmClusterResolver knows its task only after it has made the cluster.
        listed = resolver.cluster_spec().as_dict()
        if not listed:
            return None
        role, index = getattr(resolver, "task_type", None), getattr(resolver, "task_id", None)
        if role is None or index is None:
            raise ClusterConfigError(
                f"the {kind} does not say which task this process is: task_type is {role!r} and task_id is {index!r}; set both "
                'on the resolver, as in resolver.task_type = "worker" and resolver.task_id = 0'
            )
        try:
            cluster = _parse_cluster({job: _without_gaps(job, tasks) for job, tasks in listed.items()})
            return cls(addresses=cluster, task=_parse_task({"task": {"type": role, "index": index}}, cluster))
        except ClusterConfigError as error:
            raise ClusterConfigError(f"the {kind} {str(error).removeprefix(_VARIABLE).lstrip()}") from None

    @property
    def worker_tasks(self) -> tuple[Task, ...]:
        """The tasks that train, by rank: the chief, then the workers by index."""
        return tuple(
            Task(role, index)
            for role in _TRAINING_ROLES
            for index in range(len(self.addresses.get(role, ())))
            if Task(role, index) not in self.absent
        )

    def without(self, tasks: Iterable[Task]) -> Cluster:
        """Returns the cluster in which the others train without these tasks."""
        return dataclasses.replace(self, absent=self.absent.union(tasks))

    @property
    def worker_addresses(self) -> tuple[str, ...]:
        """The addresses of the workers by index, with those that are absent, and without the chief."""
        return tuple(self.addresses.get("worker", ()))

    def with_workers(self, listed: Sequence[str]) -> Cluster:
        """Returns the cluster with another number of workers, for a group that grows. Further ones are absent.

        Args:
            listed: the addresses of all workers by index.

        Raises:
            ClusterConfigError: a worker has another address in this cluster, or an address cannot be used.
        """
        known = self.worker_addresses
        for index, (mine, theirs) in enumerate(zip(known, listed)):
            if mine != theirs:
                raise ClusterConfigError(
                    f"worker {index} has the address {_show(theirs)} there, but {_show(mine)} here"
                )
        lists = {role: [*each] for role, each in {**self.addresses, "worker": listed}.items() if each}
        further = (Task("worker", index) for index in range(len(known), len(listed)))
        kept = (each for each in self.absent if each.role != "worker" or each.index < len(listed))
        return dataclasses.replace(self, addresses=_parse_cluster(lists), absent=frozenset([*kept, *further]))

    def without_workers(self) -> Cluster:
        """Returns the cluster in which only a chief trains, if there is one."""
        return self.without(Task("worker", index) for index in range(len(self.worker_addresses)))

    @property
    def whole(self) -> Cluster:
        """The cluster in which all tasks train."""
        return dataclasses.replace(self, absent=frozenset())

    @property
    def rank(self) -> int | None:
        """This task's position in `worker_tasks`; None for a parameter server or evaluator."""
        tasks = self.worker_tasks
        return tasks.index(self.task) if self.task in tasks else None

    @property
    def size(self) -> int:
        """The number of `worker_tasks`."""
        return len(self.worker_tasks)

    def address_of(self, task: Task) -> str:
        """Returns the "host:port" of a task; raises KeyError if the cluster lists no address for it."""
        listed = self.addresses.get(task.role, ())
        if not 0 <= task.index < len(listed):
            raise KeyError(f"the cluster lists no address for {task}")
        return listed[task.index]

    def name_of(self, task: Task) -> str:
        """Returns the name of a task in messages, such as "worker 2 (10.0.0.3:2222)"."""
        listed = self.addresses.get(task.role, ())
        return f"{task} ({listed[task.index]})" if 0 <= task.index < len(listed) else str(task)


def _parse_object(text: str) -> dict[str, object]:
    try:
        config = json.loads(text, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        raise _wrong(
            f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}",
            'write {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}',
        ) from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, ClusterConfigError):
            raise
        raise _wrong(
            "is not JSON that can be read: nested too deep or a number too long", "simplify it"
        ) from None
    if not isinstance(config, dict):
        raise _wrong(f"is {_show(config)}", 'write an object {"cluster": ..., "task": ...}')
    return config


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in pairs:
        if key in result:
            raise _wrong(f"has the key {_show(key)} twice in one object", "keep one of them")
        result[key] = value
    return result


def _parse_cluster(found: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(found, dict):
        raise _wrong(
            f'"cluster" is {_show(found)}', 'write an object of lists: {"worker": ["host:port", ...]}'
        )
    used: dict[tuple[str, int], Task] = {}
    cluster: dict[str, tuple[str, ...]] = {}
    for role, listed in found.items():
        _check_role(role, '"cluster" has the role')
        if not isinstance(listed, list):
            raise _wrong(
                f'"cluster" gives {role} {_show(listed)}', 'write a list of addresses ["host:port", ...]'
            )
        if not listed:
            raise _wrong(f'"cluster" gives {role} an empty list', f"list its addresses, or leave {role} out")
        for index, address in enumerate(listed):
            _claim_address(address, Task(role, index), used)
        cluster[role] = tuple(listed)
    if len(cluster.get("chief", ())) > 1:
        raise _wrong(
            f'"cluster" lists {len(cluster["chief"])} chiefs', 'keep one and move the others to "worker"'
        )
    if not any(role in cluster for role in _TRAINING_ROLES):
        raise _wrong(f'"cluster" has only {", ".join(cluster)}', 'list at least one "worker" or a "chief"')
    return cluster


def _without_gaps(job: str, tasks: Sequence[object] | Mapping[int, object]) -> list[object]:
    """Returns the addresses of a job of a ClusterSpec, which is a mapping from indices if some are missing."""
    if isinstance(tasks, Mapping):
        missing = next((index for index in range(len(tasks)) if index not in tasks), None)
        if missing is not None:
            raise _wrong(f"lists no {job} {missing}, but a later one", "list every task")
        return [tasks[index] for index in range(len(tasks))]
    return list(tasks)


def _claim_address(address: object, task: Task, used: dict[tuple[str, int], Task]) -> None:
    if not isinstance(address, str):
        raise _wrong(f"the address of {task} is {_show(address)}", 'write it as "host:port"')
    try:
        host, port = _addresses.split_address(address)
    except ValueError as error:
        raise _wrong(
            f"the address of {task} is {_show(address)}: {error}", 'write it as "host:port"'
        ) from None
    first = used.setdefault((host.lower(), port), task)
    if first != task:
        raise _wrong(
            f"{first} and {task} have the same address {_show(address)}", "give each task its own port"
        )


def _parse_task(config: dict[str, object], cluster: Mapping[str, tuple[str, ...]]) -> Task:
    if "task" not in config:
        raise _wrong('has no "task"', 'add which process this is: "task": {"type": "worker", "index": 0}')
    found = config["task"]
    if not isinstance(found, dict):
        raise _wrong(f'"task" is {_show(found)}', 'write {"type": "worker", "index": 0}')
    for key, example in (("type", '"worker"'), ("index", "0")):
        if key not in found:
            raise _wrong(f'"task" has no "{key}"', f'add it, as in "{key}": {example}')
    role, index = found["type"], found["index"]
    if not isinstance(role, str):
        raise _wrong(f'the task\'s "type" is {_show(role)}', f"write one of {', '.join(ROLES)}")
    _check_role(role, 'the task\'s "type" is')
    if isinstance(index, bool) or not isinstance(index, int):
        raise _wrong(f'the task\'s "index" is {_show(index)}', "write a whole number from 0, without quotes")
    if role != "evaluator" and role not in cluster:
        raise _wrong(
            f"the task is {role} {_show(index)}, but the cluster has no {role}", "list it in the cluster"
        )
    count = len(cluster.get(role, ("unlisted",)))
    if not 0 <= index < count:
        raise _wrong(
            f"the task is {role} {_show(index)}, but the cluster has {count} of that role",
            f"use an index from 0 to {count - 1}",
        )
    return Task(role, index)


def _check_role(role: str, where: str) -> None:
    if role == "master":
        raise _wrong(f'{where} "master", which TensorFlow 1 used', 'rename it to "chief"')
    if role not in ROLES:
        raise _wrong(f"{where} {_show(role)}, which is unknown", f"use {', '.join(ROLES)}")


def _wrong(found: str, remedy: str) -> ClusterConfigError:
    return ClusterConfigError(f"{_VARIABLE} {found}; {remedy}")


def _show(value: object) -> str:
    """Returns a value as one line of ASCII text, shortened if it is long."""
    try:
        text = json.dumps(value)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__} too large to show"
    return text if len(text) <= 60 else text[:57] + "..."
