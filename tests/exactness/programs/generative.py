"""Generative models with steps of their own. What they draw at random is part of the data, so that one process draws the same."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.exactness.programs.losses import UNEVEN
from tests.exactness.programs.registry import FEATURES, Trial, keras, program, rows

LATENT = 2


def _noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(8).standard_normal((UNEVEN, *shape)).astype("float32")


class Vae(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = keras.layers.Dense(2 * LATENT)
        self.decoder = keras.layers.Dense(FEATURES)
        self.trackers = [keras.metrics.Mean(name=name) for name in ("total", "reconstruction", "kl")]

    def parts(self, x, noise):
        mean, log_variance = tf.split(self.encoder(x), 2, axis=-1)
        decoded = self.decoder(mean + tf.exp(0.5 * log_variance) * noise)
        reconstruction = tf.reduce_mean(tf.reduce_sum(tf.square(x - decoded), axis=1))
        kl = -0.5 * (1 + log_variance - tf.square(mean) - tf.exp(log_variance))
        return reconstruction, tf.reduce_mean(tf.reduce_sum(kl, axis=1))


@program()
def vae_with_train_step() -> Trial:
    """Returns a metric from the step by another name than the metric's own, as the example of Keras does."""

    class Model(Vae):
        def call(self, inputs):
            return self.decoder(self.encoder(inputs)[:, :LATENT])

        @property
        def metrics(self):
            return self.trackers

        def train_step(self, data):
            x, noise = data
            with tf.GradientTape() as tape:
                reconstruction, kl = self.parts(x, noise)
                total = reconstruction + kl
            gradients = tape.gradient(total, self.trainable_weights)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
            for tracker, value in zip(self.trackers, (total, reconstruction, kl)):
                tracker.update_state(value)
            total, *parts = self.trackers
            return {"loss": total.result(), **{each.name: each.result() for each in parts}}

    x, _ = rows(UNEVEN)
    model = Model()
    model(x[:1])
    model.compile(keras.optimizers.Adam(0.01))
    return Trial(model, {"x": x, "y": _noise(LATENT)})


@program()
def vae_with_add_loss() -> Trial:
    class Model(Vae):
        def call(self, inputs):
            x, noise = inputs
            reconstruction, kl = self.parts(x, noise)
            self.add_loss(reconstruction)
            self.add_loss(kl)
            return x

        @property
        def metrics(self):
            return [each for each in super().metrics if each not in self.trackers]

    x, _ = rows(UNEVEN)
    model = Model()
    model((x[:1], _noise(LATENT)[:1]))
    model.compile(keras.optimizers.SGD(0.005, momentum=0.9))
    return Trial(model, {"x": (x, _noise(LATENT))}, logs=False)


class Gan(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.generator = keras.layers.Dense(FEATURES)
        self.critic = keras.Sequential([keras.layers.Dense(6, activation="tanh"), keras.layers.Dense(1)])
        self.losses_seen = [keras.metrics.Mean(name=name) for name in ("critic_loss", "generator_loss")]

    def compile(self, first, second) -> None:
        super().compile()
        self.first, self.second = first, second

    def call(self, noise):
        return self.critic(self.generator(noise))

    @property
    def metrics(self):
        return self.losses_seen

    def penalty(self, real, fake):
        return 0.0

    def train_step(self, data):
        real, noise = data
        with tf.GradientTape() as tape:
            fake = self.generator(noise)
            critic_loss = tf.reduce_mean(
                tf.nn.softplus(self.critic(fake)) + tf.nn.softplus(-self.critic(real))
            )
            critic_loss += self.penalty(real, fake)
        variables = self.critic.trainable_variables
        self.first.apply_gradients(zip(tape.gradient(critic_loss, variables), variables))
        with tf.GradientTape() as tape:
            generator_loss = tf.reduce_mean(tf.nn.softplus(-self.critic(self.generator(noise))))
        variables = self.generator.trainable_variables
        self.second.apply_gradients(zip(tape.gradient(generator_loss, variables), variables))
        for tracker, value in zip(self.losses_seen, (critic_loss, generator_loss)):
            tracker.update_state(value)
        return {each.name: each.result() for each in self.losses_seen}


def _train_gan(kind: type) -> Trial:
    x, _ = rows(UNEVEN)
    model = kind()
    model(_noise(LATENT)[:1])
    model.compile(keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.05))
    return Trial(model, {"x": x, "y": _noise(LATENT)})


@program()
def gan_with_two_optimizers() -> Trial:
    return _train_gan(Gan)


@program()
def gan_with_gradient_penalty() -> Trial:
    class Model(Gan):
        def penalty(self, real, fake):
            middle = 0.5 * (real + fake)
            with tf.GradientTape() as tape:
                tape.watch(middle)
                scores = self.critic(middle)
            norms = tf.norm(tape.gradient(scores, middle), axis=1)
            return tf.reduce_mean(tf.square(norms - 1.0))

    return _train_gan(Model)


@program()
def diffusion() -> Trial:
    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.network = keras.Sequential(
                [keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(FEATURES)]
            )
            self.tracker = keras.metrics.Mean(name="noise_loss")

        def call(self, inputs):
            return self.network(inputs)

        @property
        def metrics(self):
            return [self.tracker]

        def train_step(self, data):
            x, noise = data
            with tf.GradientTape() as tape:
                noisy = 0.6 * x + 0.8 * noise
                loss = tf.reduce_mean(tf.abs(noise - self.network(noisy)))
            gradients = tape.gradient(loss, self.network.trainable_weights)
            self.optimizer.apply_gradients(zip(gradients, self.network.trainable_weights))
            self.tracker.update_state(loss)
            return {"noise_loss": self.tracker.result()}

    x, _ = rows(UNEVEN)
    model = Model()
    model(x[:1])
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9))
    return Trial(model, {"x": x, "y": _noise(FEATURES)})
