"""Addresses as TF_CONFIG spells them."""

from __future__ import annotations

import pytest

from tf_strategies.addresses import join_address, split_address


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("localhost:2222", ("localhost", 2222)),
        ("10.0.0.3:1", ("10.0.0.3", 1)),
        ("node-7.rack_2.example.:65535", ("node-7.rack_2.example.", 65535)),
        ("[::1]:2222", ("::1", 2222)),
        ("[2001:DB8:0:0:0:0:0:1]:80", ("2001:db8::1", 80)),
    ],
)
def test_splits_into_host_and_port(address, parts):
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["host:1", "[::1]:2222", "10.0.0.3:65535"])
def test_join_is_the_inverse_of_split(address):
    assert join_address(*split_address(address)) == address


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("", "no port"),
        ("host", "no port"),
        ("[::1]", "no port"),
        (":2222", "no host"),
        ("host:", "port is not a number"),
        ("host:http", "port is not a number"),
        ("host:-1", "port is not a number"),
        ("host:٣", "port is not a number"),
        ("host:0", "between 1 and 65535"),
        ("host:65536", "between 1 and 65535"),
        ("::1:2222", "must stand in brackets"),
        ("[::g]:2222", "not an IPv6 address"),
        ("[]:2222", "not an IPv6 address"),
        ("grpc://host:1", "no scheme"),
        ("ho st:1", "neither a name nor an address"),
        ("host\n:1", "neither a name nor an address"),
        ("-host:1", "neither a name nor an address"),
        ("h" * 300 + ":1", "neither a name nor an address"),
    ],
)
def test_refuses_and_says_why(address, reason):
    with pytest.raises(ValueError, match=reason):
        split_address(address)
