"""What holds for all tests: no GPU unless asked for, few threads, a place for logs."""

from __future__ import annotations

import gc
import os
import signal

import pytest
from hypothesis import settings

pytest_plugins = ["tests.support.budgets", "tests.support.progress"]

USE_GPU = os.environ.get("TFS_TEST_GPU", "0") != "0"

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
if not USE_GPU:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
# On a busy machine one example may take long; pytest's timeout bounds the whole.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
# A shell ignores Ctrl-C for what it runs in the background, and so would the processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# A TF_CONFIG of the machine would make every strategy in the tests wait for its cluster.
os.environ.pop("TF_CONFIG", None)


# What tests import lives until the end. Looking through it for garbage is a fifth of the import of TensorFlow.
gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list) -> None:
    if USE_GPU:
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a GPU: make test-gpu"))
