"""Defines what tasks tell one another. Every message is JSON, and checked against these classes when it comes."""

from __future__ import annotations

import dataclasses
from typing import Dict, List

__all__ = ["Facts", "Greeting", "Library", "Measured", "Probe", "Report", "Resolution"]


@dataclasses.dataclass(frozen=True)
class Resolution:
    """Holds what a host name resolves to on one host.

    Attributes:
        addresses: the IP addresses, sorted.
        error: why there is none; "" if there is one.
        seconds: that the answer took.
    """

    addresses: List[str]
    error: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class Facts:
    """Holds what a task finds on its host.

    Attributes:
        host: a text that is equal for tasks that can share memory.
        host_name: as the host calls itself.
        pid: of the task.
        pid_space: equal for tasks that see one another's process ids.
        versions: package -> version; a package that is missing has "".
        names: each host of TF_CONFIG, and what it resolves to here.
        cores: the numbers of the cores that this task may use.
        cores_of_host: the number of cores that are online.
        quota: cores that the control group allows; 0 for no limit.
        threads: the variables that set numbers of threads; "" where one is unset.
        shm_total, shm_free: bytes of /dev/shm.
        shm_error: why no file can be written there; "" if one can.
        open_files, locked_memory, processes: soft limits; -1 for no limit.
        is_root: whether the task is root's, for whom some limits do not hold.
        has_rdma: whether the host has RDMA devices.
        gpus: the name of each GPU.
        gpu_driver: its version; "" without a GPU.
        gpu_error: why nvidia-smi failed; "" if it did not.
        proxies: the variables that name a proxy, without passwords.
        secret_error, tls_error: why the secret or the certificate cannot be used; "" if it can or there is none.
        has_secret: whether this task has a secret.
        tls: a fingerprint of the authority that this task trusts; "" without TLS.
        interface, mtu, speed: of the interface with this task's address; "", 0 and 0 if unknown. Megabits a second.
    """

    host: str
    host_name: str
    pid: int
    pid_space: str
    versions: Dict[str, str]
    names: Dict[str, Resolution]
    cores: List[int]
    cores_of_host: int
    quota: float
    threads: Dict[str, str]
    shm_total: int
    shm_free: int
    shm_error: str
    open_files: int
    locked_memory: int
    processes: int
    is_root: bool
    has_rdma: bool
    gpus: List[str]
    gpu_driver: str
    gpu_error: str
    proxies: Dict[str, str]
    has_secret: bool
    secret_error: str
    tls: str
    tls_error: str
    interface: str
    mtu: int
    speed: int


@dataclasses.dataclass(frozen=True)
class Greeting:
    """Is the first message of both ends of a connection.

    Attributes:
        task: that speaks.
        run: a random text of its process, by which two processes with one task are told apart.
        digest: of its cluster.
        purpose: "meet", "data" or "rate"; the accepting end repeats it.
        data_port: where it listens for data; 0 if it cannot.
        host_name: of its host.
        host, pid_space, pid: as in `Facts`.
        sample: the address of 16 bytes in its memory.
        content: these bytes, in hexadecimal digits.
    """

    task: str
    run: str
    digest: str
    purpose: str
    data_port: int
    host_name: str
    host: str
    pid_space: str
    pid: int
    sample: int
    content: str


@dataclasses.dataclass(frozen=True)
class Probe:
    """Holds how a task reached another.

    Attributes:
        control: "ok", or how the connection to its address failed: "refused", "silent" and so on, as in `link.LinkError`.
        control_text: the reason in words.
        data: the same for its data port; "" if the port is unknown.
        data_text: the reason in words.
        data_port: that was tried.
        seconds: the least round trip; 0 if there was none.
        offset: the other clock minus this one, in seconds.
        large: "ok"; "out" or "in" if messages above the MTU do not pass to or from the other task; "" if unknown.
        memory: "ok", or why the memory of the other process cannot be read; "" if it is not of this host.
    """

    control: str
    control_text: str
    data: str
    data_text: str
    data_port: int
    seconds: float
    offset: float
    large: str
    memory: str


@dataclasses.dataclass(frozen=True)
class Report:
    """Holds all that a task knows when it has met the others.

    Attributes:
        task, run, digest: as in `Greeting`.
        cluster: task -> address, of its TF_CONFIG.
        listens: "ok", or why it does not listen at its address: "taken", "not_here", "unresolved", "other".
        listens_text: the reason in words.
        data_listens: "" if it listens for data, or why it does not.
        facts: of its host.
        probes: task -> how this one reached it.
        heard: the tasks that have connected to it.
        twins: the processes that have introduced themselves as a task that another process is, in words, by task.
    """

    task: str
    run: str
    digest: str
    cluster: Dict[str, str]
    listens: str
    listens_text: str
    data_listens: str
    facts: Facts
    probes: Dict[str, Probe]
    heard: List[str]
    twins: Dict[str, str]


@dataclasses.dataclass(frozen=True)
class Library:
    """Holds how the operations load on a host.

    Attributes:
        task: that tried it.
        built_for: the TensorFlow that they were built for; "" if unknown.
        error: why they do not load; "" if they do.
        is_late: whether they were still loading when the time was over; then `error` says so.
    """

    task: str
    built_for: str
    error: str
    is_late: bool = False


@dataclasses.dataclass(frozen=True)
class Measured:
    """Holds the wire between two tasks.

    Attributes:
        first, second: the tasks; `first` has connected.
        seconds: the median of round trips of small messages.
        there, back: bytes a second from `first` to `second`, and back.
        error: why nothing was measured; "" if it was.
    """

    first: str
    second: str
    seconds: float
    there: float
    back: float
    error: str
