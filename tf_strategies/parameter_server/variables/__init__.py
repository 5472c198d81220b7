"""Variables whose values are on servers: their parts, their placement, and groups of small variables."""
