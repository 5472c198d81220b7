"""Training on servers in graphs that a session runs, as Estimator does."""
