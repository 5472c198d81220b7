"""Import this first to use the parts of tf_strategies that need no TensorFlow without loading it.

The package's own __init__ stands for the public API, which is built on TensorFlow; here an empty package
takes its place.
"""

from __future__ import annotations

import sys
import types

from tests.support.processes import REPOSITORY

if "tf_strategies" not in sys.modules or not getattr(sys.modules["tf_strategies"], "__file__", None):
    _package = types.ModuleType("tf_strategies")
    _package.__path__ = [str(REPOSITORY / "tf_strategies")]
    sys.modules["tf_strategies"] = _package
