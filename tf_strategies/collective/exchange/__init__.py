"""What workers exchange: dense, sparse and compressed values, and checks that all workers mean the same."""
