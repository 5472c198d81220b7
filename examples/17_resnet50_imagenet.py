"""Trains ResNet-50 on ImageNet with the whole recipe for large batches, and continues after an interruption.

    tfs-run --workers 2 examples/17_resnet50_imagenet.py --epochs 2 --steps_per_epoch 5 --batch_size 32 --image_size 64
    tfs-run --hosts a:8,b:8 --gpus-per-worker 1 examples/17_resnet50_imagenet.py --data_dir /data/imagenet \
        --batch_size 8192 --accumulate 2 --optimizer lars --precision mixed_float16 --model_dir /data/resnet50

A data folder has either TFRecords, `train-*` and `validation-*` with `image/encoded` and `image/class/label`, or
the folders `train` and `val` with a folder of images for each class. Without --data_dir one random image is
repeated, which shows the speed. After SIGTERM or a crash the same command goes on. The chief prints for each epoch

    Epoch 2/2
    5/5 - 8s - 2s/step - accuracy: 1.0000 - loss: 1.5761 - val_accuracy: 1.0000 - val_loss: 5.7772

Momentum and weight decay belong to the optimizer, also with `--compression dgc`: it has momentum=0, so it is top-k
with a warm-up. `--stages 1` leaves out most of the network. The example needs Keras 3.
"""

from __future__ import annotations

import functools
from pathlib import Path

import keras
import tensorflow as tf
from absl import app, flags, logging

import tf_strategies as tfs

COMPRESSIONS = {
    "none": lambda steps: None,
    "half": lambda steps: tfs.compression.Half(),
    "power_sgd": lambda steps: tfs.compression.PowerSGD(rank=4),
    "dgc": lambda steps: tfs.compression.DeepGradientCompression(0.001, momentum=0.0, warmup_steps=steps),
}
LAST_BLOCKS = {1: "conv2_block3_out", 2: "conv3_block4_out", 3: "conv4_block6_out", 4: "conv5_block3_out"}
BASE_RATES = {"sgd": 0.1, "lars": 0.3}
MEAN, DEVIATION = (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)  # of the colors of ImageNet
SEED = 1

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", "", "TFRecords, or the folders train and val; empty: one random image")
flags.DEFINE_string("model_dir", "/tmp/tf_strategies_example_17", "the chief's, for its backup and the model")
flags.DEFINE_integer("train_images", 1_281_167, "the rows of the training data")
flags.DEFINE_integer("first_label", 1, "the label of the first class in the TFRecords")
flags.DEFINE_integer("classes", 1000, "the number of classes")
flags.DEFINE_integer("image_size", 224, "the rows and columns of an image")
flags.DEFINE_integer("stages", 4, "the stages of the network, 1 to 4", 1, 4)
flags.DEFINE_integer("batch_size", 256, "of all workers together")
flags.DEFINE_integer("accumulate", 1, "the batches of an update (Keras 3)")
flags.DEFINE_integer("epochs", 90, "the epochs of the whole training")
flags.DEFINE_float("warmup_epochs", 5, "the epochs in which the rate grows")
flags.DEFINE_integer("steps_per_epoch", 0, "the batches of an epoch; 0: those of all images")
flags.DEFINE_enum("optimizer", "sgd", ["sgd", "lars"], "SGD with Nesterov's momentum, or LARS")
flags.DEFINE_float("base_rate", None, "the rate for 256 rows; 0.1 for SGD, 0.3 for LARS")
flags.DEFINE_enum("decay", "polynomial", ["polynomial", "cosine"], "how the rate falls")
flags.DEFINE_float("weight_decay", 1e-4, "of kernels")
flags.DEFINE_enum("precision", "float32", ["float32", "mixed_float16", "mixed_bfloat16"], "of the layers")
flags.DEFINE_enum("compression", "none", list(COMPRESSIONS), "of the gradients")


def augmented(image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """A random part of the image, scaled and perhaps mirrored."""
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.shape(image),
        tf.zeros([1, 0, 4]),
        seed,
        area_range=(0.08, 1.0),
        min_object_covered=0.0,
        use_image_if_no_bounding_boxes=True,
    )
    part = tf.image.resize(tf.slice(image, begin, size), [FLAGS.image_size, FLAGS.image_size])
    return tf.image.stateless_random_flip_left_right(part, seed)


def central(image: tf.Tensor) -> tf.Tensor:
    """The square in the middle, 7/8 of the shorter side, scaled."""
    height, width = tf.shape(image)[0], tf.shape(image)[1]
    side = tf.minimum(height, width) * 7 // 8
    part = tf.image.crop_to_bounding_box(image, (height - side) // 2, (width - side) // 2, side, side)
    return tf.image.resize(part, [FLAGS.image_size, FLAGS.image_size])


def read_row(record: tf.Tensor) -> tuple:
    row = tf.io.parse_single_example(
        record,
        {
            "image/encoded": tf.io.FixedLenFeature([], tf.string),
            "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        },
    )
    return row["image/encoded"], row["image/class/label"] - FLAGS.first_label


def read_items(context: tf.distribute.InputContext, training: bool) -> tf.data.Dataset:
    """This worker's encoded images and labels. All workers share one shuffle, and take their shares after it."""
    root = Path(FLAGS.data_dir)
    records = sorted(map(str, root.glob("train-*" if training else "validation-*")))
    images = sorted((root / ("train" if training else "val")).glob("*/*"))
    if records:
        items = tf.data.Dataset.from_tensor_slices(records)
    elif images:
        names = sorted(folder.name for folder in (root / "train").iterdir() if folder.is_dir())
        numbers = {name: number for number, name in enumerate(names)}
        labels = tf.constant([numbers[path.parent.name] for path in images], tf.int64)
        items = tf.data.Dataset.from_tensor_slices((list(map(str, images)), labels))
    else:
        raise app.UsageError(f"--data_dir={root} has neither TFRecords nor folders of images")
    if training:
        items = items.shuffle(len(records or images), seed=SEED)
    items = items.shard(context.num_input_pipelines, context.input_pipeline_id)
    if not records:
        return items.map(lambda path, label: (tf.io.read_file(path), label))
    items = items.interleave(tf.data.TFRecordDataset, cycle_length=8)
    return (items.shuffle(10_000, seed=SEED) if training else items).map(read_row)


def make_dataset(context: tf.distribute.InputContext, steps: int, training: bool) -> tf.data.Dataset:
    """This worker's share of the rows, in batches for a replica. Random images are validated for one step."""

    def prepare(place: tf.Tensor, item: tuple) -> tuple:
        encoded, label = item
        image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
        image = augmented(image, tf.stack([place, label])) if training else central(image)
        return (image - MEAN) / DEVIATION, tf.one_hot(label, FLAGS.classes)

    rows = FLAGS.batch_size // context.num_input_pipelines
    if FLAGS.data_dir:
        data = read_items(context, training).enumerate().map(prepare, tf.data.AUTOTUNE)
    else:
        image = tf.random.stateless_normal([FLAGS.image_size, FLAGS.image_size, 3], [SEED, 0])
        data = tf.data.Dataset.from_tensors((image, tf.one_hot(0, FLAGS.classes)))
        data = data.repeat(steps * rows if training else rows)
    if training:
        data = data.take(steps * rows)
    batches = data.batch(context.get_per_replica_batch_size(FLAGS.batch_size), drop_remainder=training)
    return batches.prefetch(tf.data.AUTOTUNE)


def build_model() -> keras.Model:
    """ResNet-50. The last γ of each block begins at 0, and the logits are float32."""
    whole = keras.applications.ResNet50(
        weights=None, include_top=False, input_shape=(FLAGS.image_size, FLAGS.image_size, 3)
    )
    features = keras.layers.GlobalAveragePooling2D()(whole.get_layer(LAST_BLOCKS[FLAGS.stages]).output)
    model = keras.Model(whole.input, keras.layers.Dense(FLAGS.classes, dtype="float32")(features))
    for layer in model.layers:
        if layer.name.endswith("_3_bn"):
            layer.gamma_initializer = keras.initializers.Zeros()
            layer.gamma.assign(tf.zeros(layer.gamma.shape))
    return model


def make_optimizer(steps_per_epoch: int) -> keras.optimizers.Optimizer:
    warmup = round(FLAGS.warmup_epochs * steps_per_epoch)
    steps = max(FLAGS.epochs * steps_per_epoch - warmup, 1)
    decays = {"polynomial": tfs.schedules.PolynomialDecay, "cosine": keras.optimizers.schedules.CosineDecay}
    rate = tfs.schedules.LinearScalingWarmup(
        FLAGS.base_rate or BASE_RATES[FLAGS.optimizer],
        256,
        global_batch=FLAGS.batch_size * FLAGS.accumulate,
        warmup_steps=warmup,
        start_rate=0.0,
        after=lambda peak: decays[FLAGS.decay](peak, steps),
    )
    options = {"gradient_accumulation_steps": FLAGS.accumulate} if FLAGS.accumulate > 1 else {}
    if FLAGS.optimizer == "lars":
        return tfs.optimizers.LARS(rate, 0.9, weight_decay=FLAGS.weight_decay, **options)
    return tfs.optimizers.SGD(rate, 0.9, nesterov=True, weight_decay=FLAGS.weight_decay, **options)


def main(arguments) -> None:
    del arguments
    logging.set_verbosity(logging.WARNING)
    keras.utils.set_random_seed(SEED)
    keras.mixed_precision.set_global_policy(FLAGS.precision)
    steps = FLAGS.steps_per_epoch or FLAGS.train_images // FLAGS.batch_size
    compression = COMPRESSIONS[FLAGS.compression](round(FLAGS.warmup_epochs * steps))
    strategy = tfs.CollectiveAllReduceStrategy(compression=compression)
    training, validation = (
        strategy.distribute_datasets_from_function(
            functools.partial(make_dataset, steps=steps, training=each)
        )
        for each in (True, False)
    )
    with strategy.scope():
        model = build_model()
        optimizer = make_optimizer(steps)
        loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
        model.compile(optimizer, loss, metrics=["accuracy"])
    tfs.large_batch.check(model, batch_size=FLAGS.batch_size)  # logs a warning for each mistake
    backup = tfs.callbacks.BackupAndRestore(Path(FLAGS.model_dir, "backup"), save_before_preemption=True)
    verbose = 2 if strategy.is_chief else 0
    model.fit(
        training,
        epochs=FLAGS.epochs,
        verbose=verbose,
        callbacks=[backup],
        validation_data=validation,
    )
    if strategy.is_chief:
        model.save(Path(FLAGS.model_dir, "resnet50.keras"))


if __name__ == "__main__":
    app.run(main)
