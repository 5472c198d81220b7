"""Losses that compare the rows of a batch with each other, or are no mean over rows, from the rows of the joint batch."""

from __future__ import annotations

import tensorflow as tf

import tf_strategies as tfs
from tests.exactness.programs.losses import UNEVEN
from tests.exactness.programs.registry import CLASSES, FEATURES, Trial, classifier, keras, program, rows


def _trial(loss) -> Trial:
    x, y = rows(UNEVEN)
    return Trial(
        classifier(loss=loss, metrics=[], optimizer=keras.optimizers.Adam(0.01)), {"x": x, "y": y[:, None]}
    )


def _similar(labels: tf.Tensor, others: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Returns the loss of each pair of rows."""
    same = tf.cast(tf.equal(labels, tf.transpose(others)), tf.float32)
    return tf.nn.sigmoid_cross_entropy_with_logits(same, logits)


@program()
def contrastive_loss_of_the_joint_batch() -> Trial:
    def loss(labels, outputs):
        labels, unit = tfs.joint_rows((labels, tf.math.l2_normalize(outputs, axis=1)))
        return tf.reduce_mean(_similar(labels, labels, tf.matmul(unit, unit, transpose_b=True)))

    return _trial(loss)


@program()
def each_row_against_the_joint_batch() -> Trial:
    def loss(labels, outputs):
        unit = tf.math.l2_normalize(outputs, axis=1)
        others, others_unit = tfs.joint_rows((labels, unit))
        return tf.reduce_mean(
            _similar(labels, others, tf.matmul(unit, others_unit, transpose_b=True)), axis=1
        )

    return _trial(loss)


@program()
def dice_of_the_joint_batch_in_train_step() -> Trial:
    class Model(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                shares = tfs.joint_rows(tf.nn.softmax(self(x, training=True)))
                truth = tf.one_hot(tfs.joint_rows(y)[:, 0], CLASSES)
                loss = 1.0 - 2.0 * tf.reduce_sum(shares * truth) / tf.reduce_sum(shares + truth)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return {"loss": loss}

    x, y = rows(UNEVEN)
    inputs = keras.layers.Input((FEATURES,))
    model = Model(inputs, keras.layers.Dense(CLASSES)(inputs))
    model.compile(keras.optimizers.Adam(0.01))
    return Trial(model, {"x": x, "y": y[:, None]})


class Codebook(keras.layers.Layer):
    """Keeps moving sums of the rows that are nearest to each of its codes (van den Oord et al. 2017, appendix A)."""

    def build(self, shape: tuple) -> None:
        normal = keras.initializers.RandomNormal(seed=1)
        self.size = self.add_weight(shape=(4,), initializer="ones", trainable=False, name="size")
        self.total = self.add_weight(shape=(4, shape[-1]), initializer=normal, trainable=False, name="total")
        super().build(shape)

    def call(self, found: tf.Tensor, training: bool = False) -> tf.Tensor:
        codes = tf.convert_to_tensor(self.total) / tf.convert_to_tensor(self.size)[:, tf.newaxis]
        distances = tf.reduce_sum((found[:, tf.newaxis] - codes) ** 2, axis=2)
        nearest = tf.one_hot(tf.argmin(distances, axis=1), 4)
        if training:
            all_nearest, all_rows = tfs.joint_rows((nearest, found))
            self.size.assign(0.9 * self.size + 0.1 * tf.reduce_sum(all_nearest, axis=0))
            self.total.assign(0.9 * self.total + 0.1 * tf.matmul(all_nearest, all_rows, transpose_a=True))
        return found + tf.stop_gradient(nearest @ codes - found)


@program()
def codebook_of_the_joint_batch() -> Trial:
    x, y = rows(UNEVEN)
    return Trial(classifier(keras.layers.Dense(8, activation="tanh"), Codebook()), {"x": x, "y": y})
