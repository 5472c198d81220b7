"""A client of test_ledger.py. Arguments: the server's address, then "check" or "join" (and wait to be killed)."""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from tests.support.checks import run_checks
from tests.support.processes import wait_until
from tf_strategies.native import ledger, ledger_core, loader
from tf_strategies.native.ledger import Caller, Decision

SERVER = "/job:ps/task:0"
NAMES = ["worker 0 (client)", "worker 1 (client)"]
SHARED = "shared with a process that dies"


def joined(name: str) -> list[Caller]:
    """Both workers, in this process."""
    callers = [Caller(name, worker, os.getpid()) for worker in range(2)]
    with tf.device(SERVER):
        for caller in callers:
            assert ledger.join(caller, names=NAMES, options="options").numpy() == 0
    return callers


def expect_error(kind: type, text: str, call, *arguments) -> float:
    """Asserts that the call raises; the seconds it took."""
    start = time.monotonic()
    try:
        call(*arguments)
    except kind as error:
        assert text in error.message, error.message
        return time.monotonic() - start
    raise AssertionError(f"no {kind.__name__} with {text!r}")


def check_the_state_is_the_servers() -> None:
    first, _ = joined("state")
    with tf.device(SERVER):
        assert "CPU" in ledger.step("state").device and "/job:ps" in ledger.step("state").device
        assert ledger.push(first, 0).numpy() == 0
        assert ledger.step("state").numpy() == 1
    assert ledger_core.names() == [], "of this process"


def check_eager_calls_end_when_they_have_run() -> None:
    first, second = joined("eager")
    with tf.device(SERVER):
        ledger.agree(first, "key", "a text")
        expect_error(
            tf.errors.InvalidArgumentError,
            "'key' differs between worker 1 (client) and worker 0 (client)",
            lambda: ledger.agree(second, "key", "another text"),
        )
        expect_error(
            tf.errors.InvalidArgumentError,
            "generation must be at least 1; got 0",
            lambda: ledger.enter(first, 0, timeout=1.0),
        )


def check_a_deadline_names_who_is_awaited() -> None:
    first, _ = joined("deadline")

    def submit():
        with tf.device(SERVER):
            return ledger.submit(first, 0, rows=1, quorum=2, timeout=0.5).decision

    for call in (submit, tf.function(submit)):
        seconds = expect_error(tf.errors.DeadlineExceededError, "none from worker 1 (client)", call)
        assert 0.5 <= seconds < 20, seconds


def check_a_wait_is_given_up_when_another_operation_fails() -> None:
    first, _ = joined("cancel")

    def nine_when_it_waits() -> np.int64:
        with tf.device(SERVER):
            wait_until(lambda: ledger.submitters("cancel").numpy().tolist() == [0], 20, "the submission")
        return np.int64(9)

    @tf.function
    def fails_here():
        with tf.device(SERVER):
            submission = ledger.submit(first, 0, rows=1, quorum=2, timeout=120.0)
        late = tf.numpy_function(nine_when_it_waits, [], tf.int64, stateful=False)
        return submission.decision, tf.gather(tf.zeros([3]), late)

    seconds = expect_error(tf.errors.InvalidArgumentError, "indices = 9 is not in [0, 3)", fails_here)
    assert seconds < 30, seconds
    with tf.device(SERVER):
        wait_until(
            lambda: ledger.counts("cancel").dropped.numpy()[0] == 1, 30, "the server to give up its wait"
        )


def check_synchronous_steps() -> None:
    callers = joined("steps")
    steps, count = 20, 1000

    def gradient_of(worker: int, step: int) -> np.ndarray:
        return ((np.arange(count) % 7 + 1) * (worker + 1) * (step + 1)).astype("float32")

    with tf.device(SERVER):
        total = tf.Variable(tf.zeros([count]))

    def function_of(worker: int):
        @tf.function
        def run(step, gradient):
            with tf.device(SERVER):
                ledger.accumulate([gradient], ledger="steps", key="v", worker=worker, step=step)
                submission = ledger.submit(callers[worker], step, rows=1, quorum=2, timeout=60.0)

                def apply():
                    (summed,) = ledger.sum_gradients(
                        submission.members,
                        ledger="steps",
                        key="v",
                        step=step,
                        dtype=tf.float32,
                        shapes=[[count]],
                    )
                    total.assign_add(summed)
                    ledger.discard("steps", step)
                    return ledger.applied(callers[worker], step)

                return tf.cond(submission.decision == Decision.APPLY, apply, lambda: submission.step)

        return run

    def work(worker: int) -> None:
        run = function_of(worker)
        for step in range(steps):
            assert (
                run(tf.constant(step, tf.int64), tf.constant(gradient_of(worker, step))).numpy() == step + 1
            )

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(work, worker) for worker in range(2)]:
            done.result(120)
    expected = sum(gradient_of(worker, step) for worker in range(2) for step in range(steps))
    np.testing.assert_array_equal(total.numpy(), expected)
    with tf.device(SERVER):
        assert [each.numpy().tolist() for each in ledger.counts("steps")] == [[0, 0], [steps, steps]]


def check_a_lost_worker_is_not_waited_for() -> None:
    caller = Caller(SHARED, 0, os.getpid())
    with tf.device(SERVER):
        ledger.join(caller, names=NAMES, options="options")
        ledger.enter(caller, 1, timeout=120.0)
        print("waits for the other", flush=True)
        submission = ledger.submit(caller, 0, rows=3, quorum=2, timeout=120.0)
        assert submission.decision.numpy() == Decision.APPLY
        assert submission.members.numpy().tolist() == [0]
        assert ledger.applied(caller, 0).numpy() == 1


def join_and_wait() -> None:
    caller = Caller(SHARED, 1, os.getpid())
    with tf.device(SERVER):
        ledger.join(caller, names=NAMES, options="options")
        ledger.enter(caller, 1, timeout=240.0)
    print("entered", flush=True)
    time.sleep(240)


def main(address: str, what: str) -> None:
    loader.library()
    tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec({"ps": [address]}))
    if what == "join":
        join_and_wait()
    run_checks(globals())


if __name__ == "__main__":
    main(*sys.argv[1:])
