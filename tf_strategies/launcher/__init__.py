"""Starts a cluster's processes on one host, or this host's share of them: tfs-run and `tfs.launch`.

run            the command line           supervisor      starts, watches and ends the processes
cluster_plan   who runs where             process         one process and its descendants
hosts, ports   which host, which ports    environment     threads and GPUs for each
agent          a share, for a launcher    output          prefixed lines
settings       what options mean          growing         a job to which workers are added
host_watch     which hosts are named      growth          the place of each worker
machines       which can run workers

launch         a function instead of a script            function_call, function_pickle   how it is sent
local_agent    the agent of a caller that lives on       function_task                    the program that calls it
                                                         call_folder                      results and errors
"""
