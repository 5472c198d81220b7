"""Models with a `train_step` or `call` of their own: means, trackers, clipping, added losses."""

from __future__ import annotations

import tensorflow as tf

from tests.exactness.programs.losses import UNEVEN, mean_crossentropy
from tests.exactness.programs.registry import CLASSES, FEATURES, Trial, keras, program, rows


class Classifier(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(8, activation="tanh")
        self.classes = keras.layers.Dense(CLASSES)
        self.tracker = keras.metrics.Mean(name="own_loss")

    def call(self, inputs, training=False):
        return self.classes(self.hidden(inputs))

    @property
    def metrics(self):
        return [self.tracker]


def _trial(kind: type, optimizer=None, **compiled) -> Trial:
    x, y = rows(UNEVEN)
    model = kind()
    model(x[:1])
    model.compile(optimizer or keras.optimizers.SGD(0.1, momentum=0.9), **compiled)
    return Trial(model, {"x": x, "y": y}, evaluate={"x": x, "y": y} if "loss" in compiled else None)


class OwnMean(Classifier):
    def loss_of(self, y, logits):
        return mean_crossentropy(y, logits)

    def changed(self, gradients):
        return gradients

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.loss_of(y, self(x, training=True))
        gradients = self.changed(tape.gradient(loss, self.trainable_variables))
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.tracker.update_state(loss)
        return {"own_loss": self.tracker.result()}


@program()
def own_mean_in_train_step() -> Trial:
    return _trial(OwnMean, keras.optimizers.Adam(0.01))


@program()
def clipping_by_hand() -> Trial:
    class Model(OwnMean):
        def changed(self, gradients):
            return tf.clip_by_global_norm(gradients, 0.1)[0]

    return _trial(Model)


@program()
def clipping_by_hand_of_each_gradient() -> Trial:
    class Model(OwnMean):
        def changed(self, gradients):
            return [tf.clip_by_norm(each, 0.05) for each in gradients]

    return _trial(Model, keras.optimizers.Adam(0.01))


@program(local_replicas=False)  # TensorFlow cannot switch between replicas in tf.cond
def gradients_accumulated_by_hand() -> Trial:
    class Model(OwnMean):
        def start(self) -> None:
            self.batches = tf.Variable(0, trainable=False)
            self.kept = [
                tf.Variable(tf.zeros(each.shape), trainable=False) for each in self.trainable_variables
            ]

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.loss_of(y, self(x, training=True))
            for kept, gradient in zip(self.kept, tape.gradient(loss, self.trainable_variables)):
                kept.assign_add(gradient)
            self.batches.assign_add(1)
            tf.cond(self.batches % 3 == 0, self.apply_kept, lambda: None)
            self.tracker.update_state(loss)
            return {"own_loss": self.tracker.result()}

        def apply_kept(self) -> None:
            self.optimizer.apply_gradients(zip(self.kept, self.trainable_variables))
            for kept in self.kept:
                kept.assign(tf.zeros_like(kept))

    trial = _trial(Model)
    trial.model.start()
    return trial


@program(local_replicas=False)  # TensorFlow gives the jacobian of no rows another shape
def clipping_by_hand_of_the_gradient_of_each_row() -> Trial:
    """Clips the gradient of each row, as differentially private training does."""

    class Model(OwnMean):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, self(x, training=True))
            of_rows = tape.jacobian(losses, self.trainable_variables)
            clipped = [tf.clip_by_norm(each, 0.3, axes=list(range(1, each.shape.rank))) for each in of_rows]
            gradients = [tf.reduce_mean(each, axis=0) for each in clipped]
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            self.tracker.update_state(tf.reduce_mean(losses))
            return {"own_loss": self.tracker.result()}

    return _trial(Model)


@program()
def gradients_summed_by_hand() -> Trial:
    """As the guide to tf.distribute clips by the norm of the summed gradient."""

    class Model(OwnMean):
        def changed(self, gradients):
            context = tf.distribute.get_replica_context()
            return tf.clip_by_global_norm(context.all_reduce("SUM", gradients), 0.1)[0]

    return _trial(Model)


@program()
def loss_divided_by_the_replicas() -> Trial:
    """As tf.distribute asks of loops of one's own."""

    class Model(OwnMean):
        def loss_of(self, y, logits):
            return mean_crossentropy(y, logits) / tf.distribute.get_strategy().num_replicas_in_sync

    return _trial(Model)


@program()
def compute_average_loss() -> Trial:
    class Model(OwnMean):
        def loss_of(self, y, logits):
            return tf.nn.compute_average_loss(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))

    return _trial(Model)


@program()
def compute_loss_in_train_step() -> Trial:
    class Model(Classifier):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            self.tracker.update_state(loss)
            return {"own_loss": self.tracker.result()}

    return _trial(Model, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))


@program()
def loss_added_in_call() -> Trial:
    class Model(Classifier):
        def call(self, inputs, training=False):
            hidden = self.hidden(inputs)
            self.add_loss(0.1 * tf.reduce_mean(tf.square(hidden)))
            return self.classes(hidden)

        metrics = keras.Model.metrics

    return _trial(Model, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))


@program()
def loss_added_in_a_layer() -> Trial:
    class Sparse(keras.layers.Layer):
        def call(self, inputs):
            self.add_loss(0.05 * tf.reduce_mean(tf.abs(inputs)))
            return inputs

    inputs = keras.layers.Input((FEATURES,))
    hidden = Sparse()(keras.layers.Dense(8, activation="tanh")(inputs))
    model = keras.Model(inputs, keras.layers.Dense(CLASSES)(hidden))
    model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = rows(UNEVEN)
    return Trial(model, {"x": x, "y": y}, evaluate={"x": x, "y": y})


@program()
def own_mean_and_compiled_loss_together() -> Trial:
    """The step returns its metrics, one of which is no mean, by names that are not their own."""

    class Model(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.area = keras.metrics.AUC(name="area")

        @property
        def metrics(self):
            return [self.tracker, self.area]

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                logits = self(x, training=True)
                loss = self.compute_loss(x, y, logits) + 0.2 * tf.reduce_mean(tf.square(logits))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            self.tracker.update_state(loss)
            self.area.update_state(tf.one_hot(y, CLASSES), tf.nn.softmax(logits))
            return {"loss": self.tracker.result(), "area_of_roc": self.area.result()}

    return _trial(
        Model, keras.optimizers.Adam(0.01), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )


@program()
def raw_loss_returned_by_train_step() -> Trial:
    class Model(OwnMean):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = mean_crossentropy(y, self(x, training=True))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return {"of_the_last_batch": loss}

        @property
        def metrics(self):
            return []

    return _trial(Model)


@program()
def distillation() -> Trial:
    class Model(OwnMean):
        def __init__(self) -> None:
            super().__init__()
            self.teacher = keras.layers.Dense(CLASSES)

        def call(self, inputs, training=False):
            return tf.concat([super().call(inputs), tf.stop_gradient(self.teacher(inputs))], -1)

        def loss_of(self, y, logits):
            student, teacher = tf.split(logits, 2, axis=-1)
            soft = tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(teacher / 2.0), student / 2.0)
            return 0.5 * mean_crossentropy(y, student) + 0.5 * tf.reduce_mean(soft)

        def train_step(self, data):
            self.teacher.trainable = False
            return super().train_step(data)

    return _trial(Model)
