"""Each worker's share of the data."""
