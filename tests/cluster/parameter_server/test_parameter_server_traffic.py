"""What a step of the parameter-server strategies moves between hosts, as their network interfaces count it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.parameter_server.traffic_worker import BATCH, CLASSES, LENGTH, SIZE, TOP, WIDTH
from tests.support.namespaces import TwoHosts, missing
from tests.support.processes import ProcessGroup, tf_config

_PORT = 22122
_FRAMING = 1.06
_SMALL_MESSAGES = 24_000


@pytest.mark.parametrize("transport", [pytest.param("grpc", marks=pytest.mark.any_line), "tcp"])
def test_a_step_moves_the_model_once_each_way_and_of_embeddings_only_rows(
    transport: str, tmp_path: Path
) -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)
    results = tmp_path / "results.json"
    with TwoHosts() as hosts, ProcessGroup(tmp_path) as group:
        roles = dict(zip(("ps", "worker"), hosts.addresses))
        cluster = {role: [f"{address}:{_PORT}"] for role, address in roles.items()}
        for index, role in enumerate(roles):
            group.start_preloaded(
                role,
                "tests.cluster.parameter_server.traffic_worker",
                *[str(results), transport],
                env={"TF_CONFIG": tf_config(cluster, role, 0)},
                namespace=hosts.name(index),
            )
        assert set(group.wait_all(timeout=180).values()) == {0}
    counted = json.loads(results.read_text())
    for way in ("received", "sent"):
        dense = counted["dense"]
        assert dense["model"] <= dense[way] <= _FRAMING * dense["model"] + _SMALL_MESSAGES
        for length in (10, 40):
            rows = BATCH * length * 4 * SIZE
            numbers = BATCH * length * 4 * (way == "sent") * 2
            assert rows <= counted[f"{length} words"][way] <= _FRAMING * (rows + numbers) + _SMALL_MESSAGES
    # Of each gradient that is sent, 4 bytes and an index of one; weights come as they are.
    small = counted["compressed"]
    assert small["model"] <= small["received"] <= _FRAMING * small["model"] + _SMALL_MESSAGES
    assert TOP * small["model"] <= small["sent"] <= 1.5 * TOP * small["model"] + _SMALL_MESSAGES
    # Layers in half precision get what they compute with: rows and kernels in 2 bytes, but for a kernel that is regularized.
    # The last layer computes in float32.
    halves = BATCH * LENGTH * SIZE + (2 * CLASSES + WIDTH + 1) * WIDTH
    singles = LENGTH * SIZE * 2 * CLASSES + CLASSES * WIDTH
    for size, received in zip((2, 4), counted["mixed"]["received"]):
        expected = size * halves + 4 * singles
        assert expected <= received <= _FRAMING * expected + _SMALL_MESSAGES, (size, received, expected)
    assert counted["mixed"]["same"]
    # Its 60 tensors travel together, each way in one message, and not one by one.
    assert counted["deep"]["sent packets"] < 40
    assert counted["deep"]["received packets"] < 40
