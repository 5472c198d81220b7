"""The face of the compiled library: loading it, its communicators, and its operations."""
