"""Variables that have one copy on each worker: equal values at the start, and equal values after each step."""
