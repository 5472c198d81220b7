"""Copies of what servers hold, on other servers: a server that starts again takes over what it held."""
