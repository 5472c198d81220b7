"""Decides which half of a group that was cut in two goes on, in elastic training.

A majority of a group needs no arbiter. Of two halves, the arbiter lets the first go on that asks.
"""
