"""Exchanges dense, sparse and compressed values between workers, and checks that the workers agree."""
