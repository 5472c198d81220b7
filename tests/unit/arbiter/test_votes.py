"""Tests that the first of two halves that asks goes on, also after the arbiter has started again."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import IO, Iterator

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


def test_names_are_cut_short_and_have_no_lines():
    assert str(Vote(1, frozenset(), tuple(f"worker {each}" for each in range(9)))).endswith(
        "worker 4 and 4 more"
    )
    assert str(Vote(1, frozenset(), ("worker\n0" + "x" * 1000,))) == "worker?0" + "x" * 112


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "votes"


@contextlib.contextmanager
def votes_in(file: Path) -> Iterator[Votes]:
    votes = Votes(file)
    try:
        yield votes
    finally:
        votes.close()


def test_votes_outlive_the_arbiter(file):
    with votes_in(file) as votes:
        assert [votes.objection(FIRST), votes.objection(FIRST)] == ["", ""]
    assert file.read_text().count("\n") == 1
    with votes_in(file) as votes:
        assert votes.count == 1
        assert "worker 2, worker 3" in votes.objection(OTHER)
        assert votes.objection(SHARED) == ""
        with pytest.raises(ValueError, match=r"another arbiter uses .*votes"):
            Votes(file)
    assert file.read_text().count("\n") == 2


def test_a_line_that_was_cut_off_does_not_count(file):
    with votes_in(file) as votes:
        votes.objection(FIRST)
    file.write_bytes(file.read_bytes()[:-1])
    with votes_in(file) as votes:
        assert votes.objection(OTHER) == ""
    with votes_in(file) as votes:
        assert votes.objection(FIRST)


@pytest.mark.parametrize(
    "content", ["notes\n", "{}\n", '{"group": 1, "ranks": 2, "names": []}\n', "[1]\n", "\n"]
)
def test_a_file_of_something_else_is_left_alone(file, content):
    file.write_text(content)
    with pytest.raises(ValueError, match=r"line 1 of .*votes is not a vote; .* a new file forgets all votes"):
        Votes(file)
    assert file.read_text() == content


@pytest.mark.parametrize("replaced", [False, True])
def test_no_vote_is_given_when_the_file_is_gone(file, replaced):
    with votes_in(file) as votes:
        votes.objection(FIRST)
        file.unlink()
        if replaced:
            file.touch()
        with pytest.raises(OSError, match="has been damaged, moved or removed"):
            votes.objection(OTHER._replace(group=8))
        assert votes.objection(FIRST) == ""


def test_a_vote_that_cannot_be_written_does_not_count(file):
    """Here the disk takes half of a line, and the file system then refuses to cut it off."""

    class Full:
        def __init__(self, opened: IO[bytes]) -> None:
            self.opened, self.may_truncate = opened, True

        def write(self, data: bytes) -> int:
            return self.opened.write(data[: len(data) // 2])

        def truncate(self, size: int) -> int:
            if not self.may_truncate:
                raise OSError("the file system is read-only")
            return self.opened.truncate(size)

        def __getattr__(self, name: str) -> object:
            return getattr(self.opened, name)

    with votes_in(file) as votes:
        whole = votes._file._opened
        full = votes._file._opened = Full(whole)
        with pytest.raises(OSError, match="is full"):
            votes.objection(FIRST)
        votes._file._opened = whole
        assert votes.objection(OTHER) == ""
        before = file.read_bytes()
        assert before.count(b"\n") == 1
        votes._file._opened, full.may_truncate = full, False
        with pytest.raises(OSError, match="read-only"):
            votes.objection(FIRST._replace(group=8))
        votes._file._opened = whole
        with pytest.raises(OSError, match="has been damaged"):
            votes.objection(FIRST._replace(group=9))
    with votes_in(file) as votes:
        assert (votes.count, file.read_bytes()) == (1, before)
