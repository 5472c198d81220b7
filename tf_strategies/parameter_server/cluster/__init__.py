"""The processes of a parameter-server training: connections, membership and failure detection."""
