"""tfs-run: starts a cluster's processes on one host, or this host's share of them.

run            the command line           supervisor      starts, watches and ends the processes
cluster_plan   who runs where             process         one process and its descendants
hosts, ports   which host, which ports    environment     threads and GPUs for each
                                          output          prefixed lines
"""
