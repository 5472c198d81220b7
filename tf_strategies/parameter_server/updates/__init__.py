"""Applies gradients to the variables on servers, asynchronously or synchronously with backup workers."""
