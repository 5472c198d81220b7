"""What the strategies need to train with `tf.estimator`, which TensorFlow 2.15 is the last release to have."""
