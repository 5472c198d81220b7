"""How gradients change the variables on servers: asynchronously, or synchronously with backup workers."""
