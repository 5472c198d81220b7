"""Heartbeats to a server that ends, and starts again at the same address before anybody asks."""

from __future__ import annotations

import queue
from concurrent import futures
from typing import Iterator
from unittest import mock

import pytest

pytest.importorskip("tensorflow")
grpc = pytest.importorskip("grpc")

from tf_strategies.parameter_server.cluster import heartbeat  # noqa: E402


class Answers(grpc.GenericRpcHandler):
    """Answers every request with the bytes of a process."""

    def __init__(self) -> None:
        self.process = b"first"

    def service(self, details: object) -> grpc.RpcMethodHandler:
        del details
        return grpc.unary_unary_rpc_method_handler(lambda question, context: self.process)


@pytest.fixture
def answers() -> Iterator[Answers]:
    found = Answers()
    server = grpc.server(futures.ThreadPoolExecutor(2), [found])
    found.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield found
    server.stop(0).wait(5)


def test_another_process_at_the_address_of_a_server_counts_as_its_loss(answers: Answers) -> None:
    protection = mock.Mock(has_gateway=False)
    peers = [("ps 0", answers.address)]
    (process,) = heartbeat.wait_until_all_are_ready("worker 0", peers, 10, protection)
    lost: queue.Queue[str] = queue.Queue()
    watching = heartbeat.Heartbeat(
        "ps 0", answers.address, lost.put, timeout=10, through_proxy=False, process=process
    )
    try:
        with pytest.raises(queue.Empty):
            lost.get(timeout=1.2)
        answers.process = b"second"
        assert "another one answers" in lost.get(timeout=5)
    finally:
        watching.stop()
    assert not heartbeat.error_of_request(answers.address, 5, through_proxy=False)
    assert heartbeat.error_of_request(answers.address, 5, through_proxy=False, process=process)
