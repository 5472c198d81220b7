"""Example 17 trains from a folder of images and from TFRecords, and continues after an interruption."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.support.processes import ProcessGroup, ReservedPorts, tf_config

pytestmark = pytest.mark.any_line
EXAMPLE = "examples.17_resnet50_imagenet"
CLASSES, TRAINING_ROWS, VALIDATION_ROWS = 2, 24, 8
SMALL = [
    *(f"--classes={CLASSES}", f"--train_images={TRAINING_ROWS}", "--batch_size=8"),
    *("--stages=1", "--image_size=32", "--warmup_epochs=1", "--base_rate=1"),
]


def encoded(label: int, number: int) -> bytes:
    """A JPEG that is dark for class 0 and light for class 1."""
    shape = [40 + number, 48, 3]
    noise = np.random.default_rng(number).integers(0, 60, shape)
    return tf.io.encode_jpeg((120 * label + 40 + noise).astype(np.uint8)).numpy()


def write_folders(root: Path) -> None:
    for part, rows in (("train", TRAINING_ROWS), ("val", VALIDATION_ROWS)):
        for number in range(rows):
            label = number % CLASSES
            folder = root / part / f"class{label}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}.jpeg").write_bytes(encoded(label, number))


def write_records(root: Path) -> None:
    for part, rows, files in (("train", TRAINING_ROWS, 3), ("validation", VALIDATION_ROWS, 2)):
        for file in range(files):
            with tf.io.TFRecordWriter(str(root / f"{part}-{file:05d}-of-{files:05d}")) as writer:
                for number in range(file, rows, files):
                    writer.write(record(number % CLASSES, number))


def record(label: int, number: int) -> bytes:
    image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded(label, number)]))
    kind = tf.train.Feature(int64_list=tf.train.Int64List(value=[label + 1]))
    features = tf.train.Features(feature={"image/encoded": image, "image/class/label": kind})
    return tf.train.Example(features=features).SerializeToString()


def test_two_workers_continue_in_the_epoch_in_which_they_were_interrupted(tmp_path: Path) -> None:
    write_folders(tmp_path / "data")
    options = [
        *SMALL,
        f"--data_dir={tmp_path / 'data'}",
        f"--model_dir={tmp_path / 'model'}",
        "--optimizer=lars",
    ]
    for run, epochs in (("interrupted", 1000), ("continued", 6)):
        with ReservedPorts(2) as ports, ProcessGroup(tmp_path) as group:
            for index in range(2):
                environment = {"TF_CONFIG": tf_config({"worker": ports.addresses}, "worker", index)}
                group.start_preloaded(
                    f"{run}{index}", EXAMPLE, *options, f"--epochs={epochs}", env=environment
                )
            if run == "interrupted":
                group["interrupted0"].wait_for_text(r"^Epoch 2/1000$", timeout=120)
                group["interrupted1"].signal(signal.SIGTERM)
                assert set(group.wait_all(timeout=60).values()) == {143}
                continue
            assert set(group.wait_all(timeout=120).values()) == {0}
            log = group["continued0"].log()
            assert "Epoch 1/" not in log and "Epoch 6/6" in log
            assert "val_accuracy" not in group["continued1"].log()


def test_tfrecords_are_read(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    write_records(tmp_path / "data")
    folders = [f"--data_dir={tmp_path / 'data'}", f"--model_dir={tmp_path / 'model'}"]
    with ProcessGroup(tmp_path) as group:
        alone = group.start_preloaded(
            "alone", EXAMPLE, *SMALL, *folders, "--epochs=3", "--precision=mixed_bfloat16"
        )
        assert alone.wait(timeout=120) == 0
        alone.wait_for_text(r"^3/3 .* val_accuracy: 1.0000", timeout=5)
    assert (tmp_path / "model" / "resnet50.keras").is_file()
