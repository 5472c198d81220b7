"""Calls between the workers outside of replica functions: of values, of objects, and of turns."""
