"""The Python interface of the compiled library: it loads the library, and wraps its communicators and operations."""
