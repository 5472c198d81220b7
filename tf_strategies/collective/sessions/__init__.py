"""Training by all-reduce in graphs that a session runs, as Estimator does."""
