"""Finds what a task can know of its own host.

collect      all of it            machine      cores, threads, shared memory, limits
names        host names           network      interfaces and MTUs
software     versions             gpus         nvidia-smi
ports        who holds a port     environment  proxies, the secret, TLS
"""
