"""Variables whose values live on servers: their parts, their placement, and small ones that are read together."""
