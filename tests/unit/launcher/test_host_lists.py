"""Lists of hosts: as typed, in files, of schedulers."""

from __future__ import annotations

import pytest

from tf_strategies.launcher.host_lists import Slots, expand_counts, expand_hosts, slots_of

pytestmark = pytest.mark.any_line


@pytest.mark.parametrize(
    ("listed", "hosts"),
    [
        ("localhost", ["localhost"]),
        ("gpu[08-10,12],login1", ["gpu08", "gpu09", "gpu10", "gpu12", "login1"]),
        ("rack[1-2]n[3,5]-ib", ["rack1n3-ib", "rack1n5-ib", "rack2n3-ib", "rack2n5-ib"]),
    ],
)
def test_a_slurm_list_of_nodes_is_expanded(listed: str, hosts: list) -> None:
    assert expand_hosts(listed) == hosts


def test_slurm_counts_of_tasks_are_expanded() -> None:
    assert expand_counts("4(x2),1,2(x3)") == [4, 4, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b", None),
        ("a", None),
        ("::1,fe80::2", None),
        ("a:4,b:2", [Slots("a", 4), Slots("b", 2)]),
        ("me@a:4", [Slots("me@a", 4)]),
        ("[fe80::1]:4, b:1", [Slots("fe80::1", 4), Slots("b", 1)]),
        ("me@[::1]:2", [Slots("me@::1", 2)]),
    ],
)
def test_typed_lists(text, expected):
    assert slots_of(text) == expected


def test_the_host_of_a_user_is_without_the_user():
    assert Slots("me@a", 1).host == "a"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a slots=4\nb slots=2 max-slots=8\n", [Slots("a", 4), Slots("b", 2)]),
        ("a\na\nb\n\n# comment\na\n", [Slots("a", 3), Slots("b", 1)]),
        ("a:4\nme@b:2 # comment\n", [Slots("a", 4), Slots("me@b", 2)]),
        ("n1.cluster 8 all.q@n1.cluster UNDEFINED\n", [Slots("n1.cluster", 8)]),
        ("a:4,b:2\n", [Slots("a", 4), Slots("b", 2)]),
        ("[fe80::1] slots=2\n", [Slots("fe80::1", 2)]),
    ],
)
def test_files(content, expected, tmp_path):
    path = tmp_path / "hosts"
    path.write_text(content)
    assert slots_of(f"@{path}") == expected
    for variable in ("PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "PE_HOSTFILE", "OMPI_MCA_orte_default_hostfile"):
        assert slots_of("auto", {variable: str(path)}) == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (
            {"SLURM_JOB_NODELIST": "gpu[1-2],big", "SLURM_TASKS_PER_NODE": "4(x2),8"},
            [Slots("gpu1", 4), Slots("gpu2", 4), Slots("big", 8)],
        ),
        ({"LSB_MCPU_HOSTS": "a 4 b 2"}, [Slots("a", 4), Slots("b", 2)]),
    ],
)
def test_variables_of_schedulers(environ, expected):
    assert slots_of("auto", environ) == expected


@pytest.mark.parametrize(
    ("text", "environ", "message"),
    [
        ("a:4,b", {}, "--hosts has 'b' without a number of workers; write b:N"),
        ("a:0", {}, "must name a once, with at least one worker"),
        ("a:1,me@a:1", {}, "must name a once"),
        ("-oProxyCommand=reboot:1", {}, "'-oProxyCommand=reboot': its host is neither a name nor an address"),
        ("-oX@a:1", {}, "'-oX@a': the user begins with a dash"),
        ("localhost:1,a:1", {}, "has localhost, which other hosts cannot reach"),
        ("127.0.0.1:1,a:1", {}, "has 127.0.0.1, which other hosts cannot reach"),
        ("auto", {}, "no variable of SLURM, PBS, LSF"),
        (
            "auto",
            {"SLURM_JOB_NODELIST": "a,b", "SLURM_TASKS_PER_NODE": "4"},
            r"SLURM names 2 nodes \(a,b\), but the tasks of 1",
        ),
        ("@/no/file", {}, "--hosts @/no/file: .*No such file"),
        ("@/dev/null", {}, "the file names no host"),
    ],
)
def test_wrong_lists_are_refused(text, environ, message):
    with pytest.raises(ValueError, match=message):
        slots_of(text, environ)
