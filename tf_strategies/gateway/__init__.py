"""Protects the parameter-server tasks: TensorFlow's servers run any graph for whoever connects, and encrypt nothing.

Each task starts a process of its own, the gateway. TensorFlow's server is reachable on the loopback interface alone. The gateway
accepts connections at the address of TF_CONFIG, and passes them on to the server when the other end has proved itself. It is also
the HTTP proxy through which gRPC in this task connects to the others, so it makes the same proof on the way out:

    TensorFlow -> gateway of this task  == secret, TLS ==>  gateway of the other task -> TensorFlow's server

It is a process because TensorFlow 2.15 holds Python's lock while it waits for another task. Connections for tensors are handed to
the process of the task, and do not pass through the gateway. Imports no TensorFlow.
"""

from tf_strategies.gateway.client import open_data_connection, reason_of_refusal
from tf_strategies.gateway.greeting import Security
from tf_strategies.gateway.process import Gateway

__all__ = ["Gateway", "Security", "open_data_connection", "reason_of_refusal"]
