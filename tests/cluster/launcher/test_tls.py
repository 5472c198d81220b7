"""tfs-run --tls with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [pytest.mark.any_line, pytest.mark.quick, pytest.mark.waits]


def test_tls_encrypts_a_training_with_certificates_that_are_removed(launcher) -> None:
    code = """
import numpy as np, tensorflow as tf, tf_strategies as tfs
options = tfs.CommunicationOptions(transport="tcp", security="tls", timeout=60)
strategy = tfs.CollectiveAllReduceStrategy(options)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(3, kernel_initializer="ones")])
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
x = np.arange(64, dtype=np.float32).reshape(16, 4) / 64
model.fit(tf.data.Dataset.from_tensor_slices((x, x[:, :3])).batch(8), epochs=2, verbose=0)
weights = [float(each) for each in model.get_weights()[0].ravel()]
note(transport=strategy.communication_stats().transport, weights=weights, folder=os.environ["TF_STRATEGIES_TLS"])
"""
    status, log = launcher.run("--workers", "2", "--tls", code=code, timeout=120)
    assert status == 0, log
    first, second = launcher.seen().values()
    assert first["transport"] == second["transport"] == "tcp (TLS 1.3)"
    assert first["weights"] == second["weights"] != [1.0] * 12
    assert not Path(first["folder"]).parent.exists()


def test_tls_on_several_hosts_needs_certificates_of_the_user(launcher) -> None:
    status, log = launcher.run("--hosts", "127.0.0.1", "--port-base", "22222", "--tls")
    assert status == 2
    assert "with --hosts set TF_STRATEGIES_TLS" in log
