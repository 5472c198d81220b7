"""The ledger's operations in one process, eager and in graphs; the core's tests hold its rules."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import numpy as np
import pytest
import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.native import ledger, ledger_core
from tf_strategies.native.ledger import Caller, Decision

_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """Of a ledger that no other test uses."""
    return f"test/{next(_numbers)}"


def joined(name: str, size: int = 2) -> list[Caller]:
    callers = [Caller(name, worker, -5 - worker) for worker in range(size)]
    for caller in callers:
        assert ledger.join(caller, names=names_of(size), options="options").numpy() == 0
    return callers


def names_of(size: int) -> list[str]:
    return [f"worker {worker} (host:{worker})" for worker in range(size)]


def in_background(function, *arguments, **options):
    """A future; an answer that never comes fails the test by pytest's timeout."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(function, *arguments, **options)
    finally:
        pool.shutdown(wait=False)


def test_members_and_what_the_server_sees(name: str) -> None:
    first, second = joined(name)
    assert name in ledger_core.names()
    ledger.leave(first, finished=True)
    assert [(member.name, member.status, member.incarnation) for member in ledger_core.members(name)] == [
        ("worker 0 (host:0)", "finished", -5),
        ("worker 1 (host:1)", "training", -6),
    ]
    assert not ledger_core.mark_lost(name, 1, 17)
    assert ledger_core.mark_lost(name, 1, second.incarnation)
    with pytest.raises(tf.errors.AbortedError, match=r"worker 1 \(host:1\) was declared lost"):
        ledger.push(second, 0)
    for call in (
        lambda: ledger_core.members("none"),
        lambda: ledger_core.mark_lost("none", 0, 0),
        lambda: ledger_core.hold("none"),
        lambda: ledger_core.release("none"),
    ):
        with pytest.raises(KeyError):
            call()
    assert "none" not in ledger_core.names()


def test_workers_that_differ_are_both_named(name: str) -> None:
    first, second = joined(name)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"worker 1 .*other options than worker 0 .*'other' and 'options'",
    ):
        ledger.join(second, names=names_of(2), options="other")
    ledger.agree(first, "shape", "[3]")
    ledger.agree(second, "shape", tf.constant("[3]"))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"'shape' differs between worker 1 .* and worker 0"
    ):
        ledger.agree(second, "shape", "[4]")


def test_enter_waits_for_the_others(name: str) -> None:
    first, second = joined(name)
    with pytest.raises(tf.errors.DeadlineExceededError, match=r"its fit 1 together with worker 1 \(host:1\)"):
        ledger.enter(first, 1, timeout=0.05)
    waiting = in_background(ledger.enter, first, 1, timeout=60)
    ledger.enter(second, 1, timeout=60)
    assert waiting.result(60).numpy() == 0
    start = time.monotonic()
    with pytest.raises(tf.errors.DeadlineExceededError, match=r"its fit 2 together with worker 1 \(host:1\)"):
        ledger.enter(first, 2, timeout=0.2)
    assert 0.2 <= time.monotonic() - start < 5
    ledger.enter(first, 2, timeout=0)


@pytest.mark.parametrize("in_graph", [False, True])
def test_pull_and_push(in_graph: bool, name: str) -> None:
    first, second = joined(name)

    def update(pulled):
        step = ledger.pull(first, max_staleness=2, timeout=60)
        assert step.shape == []
        staleness = ledger.push(first, pulled)
        assert staleness.shape == []
        return step, staleness

    function = tf.function(update) if in_graph else update
    found = [[value.numpy() for value in function(tf.constant(0, tf.int64))] for _ in range(3)]
    assert found == [[0, 0], [1, 1], [2, 2]]
    with pytest.raises(tf.errors.DeadlineExceededError, match="worker 1"):
        ledger.pull(first, max_staleness=2, timeout=0.05)
    waiting = in_background(function, tf.constant(3, tf.int64))
    assert ledger.push(second, 1).numpy() == 2
    assert [value.numpy() for value in waiting.result(60)] == [4, 1]
    histogram, count, total, maximum = (value.numpy() for value in ledger.staleness(name))
    assert histogram.shape == (256,)
    assert histogram[:4].tolist() == [1, 2, 2, 0]
    assert (count, total, maximum) == (5, 6, 2)
    assert ledger.step(name).numpy() == 5


def test_a_lost_worker_is_not_waited_for(name: str) -> None:
    first, second = joined(name)
    ledger.push(first, 0)
    with pytest.raises(tf.errors.DeadlineExceededError, match="worker 1"):
        ledger.pull(first, max_staleness=0, timeout=0.05)
    waiting = in_background(ledger.pull, first, max_staleness=0, timeout=60)
    ledger_core.mark_lost(name, 1, second.incarnation)
    assert waiting.result(60).numpy() == 1


def synchronous_step(name: str, quorum: int):
    """One step of a worker on a variable [2, 3] and on rows [3]; the sums that the worker that applies reads."""

    @tf.function
    def run(worker, caller, step, gradient, rows):
        ledger.accumulate([gradient, -gradient], ledger=name, key="v", worker=worker, step=step)
        ledger.accumulate_rows(rows, ledger=name, key="w", worker=worker, step=step)
        submission = ledger.submit(caller, step, rows=worker + 4, quorum=quorum, timeout=60.0)

        def apply():
            source = {"ledger": name, "step": submission.step, "dtype": gradient.dtype}
            sums = ledger.sum_gradients(submission.members, key="v", shapes=[[2, 3], [2, None]], **source)
            assert [each.shape.as_list() for each in sums] == [[2, 3], [2, None]]
            again = ledger.sum_gradients(submission.members, key="v", shapes=[None, None], **source)
            tf.debugging.assert_equal(sums[0], again[0])
            slices = ledger.gather_rows(submission.members, key="w", row_shape=[3], **source)
            assert slices.values.shape.as_list() == [None, 3]
            ledger.discard(name, submission.step)
            return *sums, slices.indices, slices.values, ledger.applied(caller, submission.step)

        def nothing():
            empty = tf.zeros([0, 3], gradient.dtype)
            return empty, empty, tf.zeros([0], tf.int64), empty, submission.step

        return submission, tf.cond(submission.decision == Decision.APPLY, apply, nothing)

    return run


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.float16, tf.bfloat16])
def test_a_step_with_a_backup_worker(dtype: tf.DType, name: str) -> None:
    callers = joined(name, 3)
    run = synchronous_step(name, quorum=2)
    gradients = [np.arange(6.0).reshape(2, 3) * (worker + 1) + worker for worker in range(3)]

    def work(worker: int):
        values = np.full([worker + 1, 3], float(worker))
        rows = tf.IndexedSlices(tf.cast(values, dtype), tf.range(worker + 1))
        return run(worker, callers[worker], tf.constant(0, tf.int64), tf.cast(gradients[worker], dtype), rows)

    waiting = in_background(work, 2)
    while (
        not ledger_core.members(name)
        or ledger.accumulate([tf.zeros([1])], ledger=name, key="count", worker=0, step=0).numpy() < 3
    ):
        time.sleep(0.01)
    submission, (first, second, indices, values, step) = work(0)
    assert submission.decision.numpy() == Decision.APPLY
    assert submission.members.numpy().tolist() == [0, 2]
    assert submission.rows.numpy() == 4 + 6
    np.testing.assert_array_equal(tf.cast(first, tf.float64), gradients[0] + gradients[2])
    np.testing.assert_array_equal(tf.cast(second, tf.float64), -gradients[0] - gradients[2])
    assert indices.numpy().tolist() == [0, 0, 1, 2]
    np.testing.assert_array_equal(tf.cast(values, tf.float64), [[0] * 3] + [[2] * 3] * 3)
    assert step.numpy() == 1
    counted = waiting.result(60)[0]
    assert (counted.decision.numpy(), counted.step.numpy()) == (Decision.COUNTED, 1)
    late = work(1)[0]
    assert (late.decision.numpy(), late.step.numpy(), late.members.shape) == (Decision.DROPPED, 1, [0])
    dropped, counts = (value.numpy().tolist() for value in ledger.counts(name))
    assert (dropped, counts) == ([0, 1, 0], [1, 0, 1])
    assert ledger.discard(name, 0).numpy() == 0


@pytest.mark.parametrize("fails", ["nothing", "its step", "it"])
def test_a_part_of_an_update_is_done_once_and_to_its_end(fails: str, name: str) -> None:
    made, good = tf.Variable(0), tf.Variable(fails != "it")

    @tf.function(autograph=False)
    def run(update: tf.Tensor, disturbed: tf.Tensor) -> tf.Tensor:
        def add() -> None:
            start = tf.timestamp()
            (end,) = tf.while_loop(lambda now: now < start + 0.5, lambda now: [tf.timestamp()], [start])
            with tf.control_dependencies([end, tf.debugging.assert_equal(good.read_value(), True)]):
                made.assign_add(1)

        function, captured = compat.defined_function("add", add)
        now = ledger.run_once(update, function, captured, ledger=name, part=0)
        late = tf.numpy_function(lambda: time.sleep(0.1) or np.int64(9), [], tf.int64, stateful=False)
        index = late * tf.cast(disturbed, tf.int64)
        with tf.device("CPU:0"):
            return now, tf.gather(tf.zeros([3]), index)

    first = tf.constant(7 << 40, tf.int64)
    if fails == "nothing":
        assert run(first, False)[0]
    else:
        with pytest.raises(tf.errors.InvalidArgumentError):
            run(first, fails == "its step")
    assert made.numpy() == (fails != "it")
    good.assign(True)
    if fails == "it":
        with pytest.raises(tf.errors.FailedPreconditionError, match="failed on this server before"):
            run(first, False)
        made.assign(1)
    else:
        assert not run(first, False)[0]
    assert run(first + 1, False)[0]
    assert not run(first, False)[0]
    assert made.numpy() == 2


def test_who_asks_for_a_part_that_is_being_done_waits_for_its_end(name: str) -> None:
    made = tf.Variable(0)

    @tf.function(autograph=False)
    def run() -> tf.Tensor:
        def add() -> None:
            start = tf.timestamp()
            (end,) = tf.while_loop(lambda now: now < start + 0.3, lambda now: [tf.timestamp()], [start])
            with tf.control_dependencies([end]):
                made.assign_add(1)

        function, captured = compat.defined_function("add", add)
        now = ledger.run_once(tf.constant(1, tf.int64), function, captured, ledger=name, part=3)
        with tf.control_dependencies([now]):
            return now, made.read_value()

    run.get_concrete_function()
    found = [in_background(run) for _ in range(3)]
    results = [each.result(60) for each in found]
    assert sorted(bool(now) for now, _ in results) == [False, False, True]
    assert [int(value) for _, value in results] == [1, 1, 1]


def test_an_offer_is_given_up_with_its_step(name: str) -> None:
    first, second = joined(name)

    @tf.function
    def fails_elsewhere():
        submission = ledger.submit(first, 0, rows=1, quorum=2, timeout=60.0)
        late = tf.numpy_function(lambda: time.sleep(0.3) or np.int64(9), [], tf.int64, stateful=False)
        return submission.decision, tf.gather(tf.zeros([3]), late)

    start = time.monotonic()
    with pytest.raises(tf.errors.InvalidArgumentError):
        fails_elsewhere()
    assert time.monotonic() - start < 30
    assert [value.numpy().tolist() for value in ledger.counts(name)] == [[1, 0], [0, 0]]
    submissions = {
        in_background(ledger.submit, caller, 0, rows=1, quorum=2, timeout=60.0): caller
        for caller in (first, second)
    }
    done = wait(submissions, timeout=60, return_when=FIRST_COMPLETED).done.pop()
    assert done.result().decision.numpy() == Decision.APPLY
    ledger.applied(submissions.pop(done), 0)
    assert submissions.popitem()[0].result(60).decision.numpy() == Decision.COUNTED


def test_what_is_missing_is_named(name: str) -> None:
    joined(name)
    ledger.accumulate([tf.ones([3])], ledger=name, key="v", worker=0, step=4)
    source = {"ledger": name, "step": 4, "dtype": tf.float32}
    with pytest.raises(
        tf.errors.FailedPreconditionError, match=r"gradient 'v' of worker 1 \(host:1\) for step 4 is not here"
    ):
        ledger.sum_gradients(tf.constant([0, 1]), key="v", shapes=[[3]], **source)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"worker 1 .*\[2\].*worker 0 .*\[3\]|float32 \[2\]"
    ):
        ledger.accumulate([tf.ones([2])], ledger=name, key="v", worker=1, step=4)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"with shape \[3\]; \[4\] is expected"):
        ledger.sum_gradients(tf.constant([0]), key="v", shapes=[[4]], **source)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="dense float32 in 1 parts, and is requested as rows"
    ):
        ledger.gather_rows(tf.constant([0]), key="v", row_shape=[], **source)


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda caller: ledger.enter(caller, 0, timeout=1.0), "generation must be at least 1; got 0"),
        (lambda caller: ledger.enter(caller, 1, timeout=-1.0), "timeout must be between 0 and .* got -1"),
        (
            lambda caller: ledger.pull(caller, max_staleness=-2, timeout=1.0),
            "max_staleness must be .* got -2",
        ),
        (lambda caller: ledger.push(caller, 7), "pulled at step 7; the steps so far are 0 to 0"),
        (lambda caller: ledger.set_step(caller.ledger, -1), "step must be at least 0; got -1"),
        (lambda caller: ledger.roll_back(caller.ledger, -1, 0).next, "step must be at least 0; got -1"),
        (lambda caller: ledger.roll_back(caller.ledger, 0, -2).next, "first must be at least -1; got -2"),
        (
            lambda caller: ledger.submit(caller, 0, rows=-1, quorum=1, timeout=1.0).step,
            "rows must be between 0 and 1099511627776; got -1",
        ),
        (
            lambda caller: ledger.accumulate([tf.ones([])], ledger=caller.ledger, key="k", worker=0, step=-1),
            "step must be at least 0; got -1",
        ),
        (
            lambda caller: ledger.sum_gradients(
                tf.constant([2, 1]), ledger=caller.ledger, key="k", step=0, dtype=tf.half, shapes=[[]]
            )[0],
            "members must ascend; got 2 before 1",
        ),
    ],
)
def test_bad_input_is_refused_with_the_values(call, message: str, in_graph: bool, name: str) -> None:
    caller = joined(name)[0]
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        tf.function(call)(caller) if in_graph else call(caller)


def test_shapes_are_checked() -> None:
    caller = Caller("shapes", 0, 1)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=r"scalar|rank 0"):
        ledger.push(caller, tf.constant([1, 2], tf.int64))
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="indices must have the shape"):
        rows = tf.IndexedSlices(tf.ones([2, 3]), tf.constant([1]))
        ledger.accumulate_rows(rows, ledger="shapes", key="k", worker=0, step=0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="the name of a ledger is empty"):
        ledger.step("")


def test_a_restored_step_is_the_step(name: str) -> None:
    first, _ = joined(name)
    assert ledger.set_step(name, 40).numpy() == 40
    assert ledger.pull(first, timeout=1).numpy() == 40
    assert ledger.push(first, 40).numpy() == 0
    assert ledger.step(name).numpy() == 41


def test_a_held_step_is_applied_after_the_release(name: str) -> None:
    first, second = joined(name)
    assert ledger_core.hold(name)
    waiting = in_background(ledger.submit, first, 0, rows=1, quorum=1, timeout=60.0)
    with pytest.raises(tf.errors.DeadlineExceededError, match="while the parameter servers held step 0"):
        ledger.submit(second, 0, rows=1, quorum=1, timeout=0.2)
    assert not waiting.done()
    ledger_core.release(name)
    assert waiting.result(60).decision.numpy() == Decision.APPLY
    assert not ledger_core.hold(name)
    ledger.applied(first, 0)
    assert ledger_core.hold(name)


@pytest.mark.parametrize("in_session", [False, True])
def test_steps_are_repeated_after_a_roll_back(in_session: bool, name: str) -> None:
    first, second = joined(name)
    made = tf.Variable(0)

    @tf.function(autograph=False)
    def run(update: tf.Tensor) -> tf.Tensor:
        def add() -> None:
            made.assign_add(1)

        function, captured = compat.defined_function("add", add)
        return ledger.run_once(update, function, captured, ledger=name, part=0)

    def roll_back(step: int, update: int) -> ledger.RollBack:
        if not in_session:
            return ledger.RollBack(*(each.numpy() for each in ledger.roll_back(name, step, update)))
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            return session.run(ledger.roll_back(name, step, update))

    ledger.set_step(name, 7)
    ledger.accumulate([tf.ones([3])], ledger=name, key="v", worker=0, step=7)
    waiting = in_background(ledger.submit, first, 7, rows=1, quorum=2, timeout=60.0)
    while ledger.submitters(name).numpy().tolist() != [0]:
        time.sleep(0.01)
    update = ledger.submit(second, 7, rows=1, quorum=2, timeout=60.0).update
    assert run(update)
    back = roll_back(5, -1)
    assert back.next > update.numpy()
    assert back.idle
    assert ledger.step(name).numpy() == 5
    with pytest.raises(tf.errors.AbortedError, match="the parameter servers went back to step 5"):
        waiting.result(60)
    with pytest.raises(tf.errors.FailedPreconditionError):
        ledger.applied(second, 7)
    with pytest.raises(tf.errors.FailedPreconditionError, match="for step 7 is not here"):
        ledger.sum_gradients(tf.constant([0]), ledger=name, key="v", step=7, dtype=tf.float32, shapes=[[3]])
    with pytest.raises(tf.errors.FailedPreconditionError):
        run(update)
    waiting = in_background(ledger.submit, first, 5, rows=1, quorum=2, timeout=60.0)
    while ledger.submitters(name).numpy().tolist() != [0]:
        time.sleep(0.01)
    again = ledger.submit(second, 5, rows=1, quorum=2, timeout=60.0)
    assert again.update.numpy() == back.next
    assert run(again.update)
    assert ledger.applied(second, 5).numpy() == 6
    assert waiting.result(60).decision.numpy() == Decision.COUNTED
    elsewhere = int(back.next) + (1 << 40)
    assert roll_back(5, elsewhere) == (elsewhere, True)
    with pytest.raises(tf.errors.FailedPreconditionError):
        run(again.update)
    assert made.numpy() == 2
