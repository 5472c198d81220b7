"""CommunicationOptions: defaults, what is refused, what must agree between workers."""

from __future__ import annotations

import dataclasses
import math
import pickle

import numpy as np
import pytest

from tf_strategies.errors import OptionsError
from tf_strategies.options import (
    ALGORITHMS,
    TRANSPORTS,
    CommunicationOptions,
    Elastic,
    ParameterServerOptions,
    heartbeat_timeout_of,
)


def test_defaults():
    options = CommunicationOptions()
    assert dataclasses.asdict(options) == {
        "algorithm": "auto",
        "bytes_per_pack": 8 << 20,
        "chunk_bytes": None,
        "timeout": 600.0,
        "heartbeat_timeout": None,
        "transport": "auto",
        "security": "auto",
    }


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_algorithm_and_transport_is_accepted(algorithm, transport):
    options = CommunicationOptions(algorithm=algorithm, transport=transport)
    assert (options.algorithm, options.transport) == (algorithm, transport)


def test_whole_numbers_of_numpy_are_accepted_as_plain_ones():
    options = CommunicationOptions(chunk_bytes=np.int64(4096), timeout=np.float32(2))
    assert type(options.chunk_bytes) is int
    assert type(options.timeout) is float


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("algorithm", "RING"),
        ("algorithm", None),
        ("algorithm", 1),
        ("transport", "rdma"),
        ("transport", []),
        ("security", "ssl"),
        ("security", True),
        ("bytes_per_pack", 0),
        ("bytes_per_pack", -1),
        ("bytes_per_pack", 1.5),
        ("bytes_per_pack", "8"),
        ("bytes_per_pack", True),
        ("bytes_per_pack", 1 << 41),
        ("chunk_bytes", 1023),
        ("chunk_bytes", (1 << 30) + 1),
        ("timeout", 0),
        ("timeout", -1.0),
        ("timeout", math.nan),
        ("timeout", math.inf),
        ("timeout", "30"),
        ("timeout", None),
        ("timeout", True),
        ("timeout", 10**400),
    ],
)
def test_a_bad_value_is_named_with_the_option(option, value):
    with pytest.raises(OptionsError) as caught:
        CommunicationOptions(**{option: value})
    assert str(caught.value).startswith(f"{option} must be ")
    assert str(caught.value).endswith(f"; got {value!r}")


def test_is_keyword_only_and_frozen():
    with pytest.raises(TypeError):
        CommunicationOptions("ring")
    with pytest.raises(dataclasses.FrozenInstanceError):
        CommunicationOptions().timeout = 1.0


def test_replace_validates_again():
    options = dataclasses.replace(CommunicationOptions(algorithm="ring"), timeout=3)
    assert (options.algorithm, options.timeout) == ("ring", 3.0)
    with pytest.raises(OptionsError):
        dataclasses.replace(options, transport="pigeon")


def test_equal_options_are_equal_also_after_pickling():
    options = CommunicationOptions(algorithm="ring")
    assert pickle.loads(pickle.dumps(options)) == options
    assert hash(options) == hash(CommunicationOptions(algorithm="ring"))


@pytest.mark.parametrize("options", [CommunicationOptions, ParameterServerOptions])
@pytest.mark.parametrize("wrong", [0, 2.9, 31, "10", None])
def test_a_heartbeat_timeout_that_is_wrong_is_named(options, wrong):
    if wrong is None and options is CommunicationOptions:
        assert options(heartbeat_timeout=None).heartbeat_timeout is None
        return
    with pytest.raises(OptionsError, match=rf"heartbeat_timeout must be .* seconds.*; got {wrong!r}"):
        options(heartbeat_timeout=wrong)


def test_others_may_be_silent_for_longer_where_their_loss_ends_training():
    options = CommunicationOptions()
    assert heartbeat_timeout_of(options, None) == ParameterServerOptions().heartbeat_timeout == 10
    assert heartbeat_timeout_of(options, Elastic()) == 3
    for elastic in (None, Elastic()):
        assert heartbeat_timeout_of(CommunicationOptions(heartbeat_timeout=20), elastic) == 20


def test_all_but_the_timeout_must_agree():
    fields = {field.name for field in dataclasses.fields(CommunicationOptions)}
    assert set(CommunicationOptions().digest_fields()) == fields - {"timeout"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_workers": 0},
        {"min_workers": True},
        {"min_workers": 1.5},
        {"patience": 0},
        {"copy_every": 0},
        {"max_workers": 0},
        {"max_workers": 2.0},
        {"max_workers": 5000},
        {"arbiter": "10.0.0.9"},
        {"arbiter": "0.0.0.0:2222"},
        {"arbiter": 2222},
    ],
)
def test_options_of_elastic_training_that_are_wrong_are_named(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(OptionsError, match=rf"{name} must be .*; got {value!r}"):
        Elastic(**wrong)


def test_a_group_cannot_grow_to_fewer_workers_than_it_needs():
    with pytest.raises(OptionsError, match=r"max_workers must be .* from min_workers=3 .*; got 2"):
        Elastic(min_workers=3, max_workers=2)
    assert Elastic(min_workers=3, max_workers=3).max_workers == 3
    assert Elastic().max_workers is None


def test_the_environment_may_name_the_arbiter(monkeypatch):
    assert Elastic().arbiter is None
    monkeypatch.setenv("TF_STRATEGIES_ARBITER", "10.0.0.9:2222")
    assert Elastic().arbiter == "10.0.0.9:2222"
    assert Elastic(arbiter="10.0.0.8:2222").arbiter == "10.0.0.8:2222"
    monkeypatch.setenv("TF_STRATEGIES_ARBITER", "10.0.0.9")
    with pytest.raises(
        OptionsError, match=r"TF_STRATEGIES_ARBITER must be an address, .*; got '10\.0\.0\.9': it has no port"
    ):
        Elastic()
