"""Compressors of gradients. Pass one of them to a strategy as `compression=`.

Example:
    strategy = tfs.CollectiveAllReduceStrategy(compression=tfs.compression.TopK(ratio=0.01))
"""

from tf_strategies.compression.base import Compressor
from tf_strategies.compression.deep_gradient_compression import DeepGradientCompression
from tf_strategies.compression.half import Half
from tf_strategies.compression.power_sgd import PowerSGD
from tf_strategies.compression.quantized import Quantize4, Quantize8, SignSGD, Ternary
from tf_strategies.compression.random_k import RandomK
from tf_strategies.compression.top_k import TopK

__all__ = [
    "Compressor",
    "DeepGradientCompression",
    "Half",
    "PowerSGD",
    "Quantize4",
    "Quantize8",
    "RandomK",
    "SignSGD",
    "Ternary",
    "TopK",
]
