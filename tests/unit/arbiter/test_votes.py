"""Of two halves of a group, the first that asks goes on, also after the arbiter has started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tf_strategies.arbiter.votes import Vote, Votes

pytestmark = pytest.mark.any_line

FIRST = Vote(7, frozenset({2, 3}), ("worker 2", "worker 3"))
OTHER = Vote(7, frozenset({0, 1}), ("worker 0", "worker 1"))
SHARED = Vote(7, frozenset({1, 2}))


def test_the_first_half_that_asks_goes_on():
    votes = Votes()
    assert votes.objection(FIRST) == ""
    assert votes.objection(FIRST) == ""  # it has not heard the answer
    assert "the other half goes on, worker 2, worker 3; start" in votes.objection(OTHER)
    assert votes.objection(OTHER._replace(group=8)) == ""  # another group


def test_all_halves_that_go_on_share_a_rank():
    votes = Votes()
    assert [votes.objection(each) for each in (FIRST, SHARED)] == ["", ""]
    assert votes.objection(Vote(7, frozenset({0, 3})))  # shares one with the first alone
    assert votes.objection(Vote(7, frozenset({1, 3}))) == ""


def test_many_names_are_cut_short():
    assert str(Vote(1, frozenset(), tuple(f"worker {each}" for each in range(9)))).endswith(
        "worker 4 and 4 more"
    )


def test_votes_outlive_the_arbiter(tmp_path):
    file = tmp_path / "votes"
    with Votes(file) as votes:
        votes.objection(FIRST)
        votes.objection(FIRST)
    assert file.read_text().count("\n") == 1
    with Votes(file) as votes:
        assert "worker 2, worker 3" in votes.objection(OTHER)
        assert votes.objection(SHARED) == ""
        with pytest.raises(ValueError, match=r"another arbiter uses .*votes"):
            Votes(file)
    assert file.read_text().count("\n") == 2


def test_a_line_that_was_cut_off_does_not_count(tmp_path):
    file = tmp_path / "votes"
    with Votes(file) as votes:
        votes.objection(FIRST)
    file.write_bytes(file.read_bytes()[:-1])
    with Votes(file) as votes:
        assert votes.objection(OTHER) == ""
    with Votes(file) as votes:
        assert votes.objection(FIRST)


@pytest.mark.parametrize("content", ["notes\n", "{}\n", '{"group": 1, "ranks": 2, "names": []}\n', "[1]\n"])
def test_a_file_of_something_else_is_left_alone(tmp_path, content):
    file = tmp_path / "votes"
    file.write_text(content)
    with pytest.raises(ValueError, match=r"line 1 of .*votes is not a vote; name another file"):
        Votes(file)
    assert file.read_text() == content


def test_a_vote_that_cannot_be_written_does_not_count(tmp_path):
    with Path("/dev/full").open("a+b", buffering=0) as full:
        votes = Votes(tmp_path / "votes")
        kept, votes._file = votes._file, full
        with pytest.raises(OSError):
            votes.objection(FIRST)
        votes._file = kept
        assert votes.objection(OTHER) == ""
        votes.close()
