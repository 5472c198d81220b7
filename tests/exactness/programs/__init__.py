"""Programs that people train with, each written for one process: what exactness is shown with.

A program is a function that is decorated with `@program`. It makes a compiled model in the scope that its caller has
opened, and returns a `Trial`.
"""

from __future__ import annotations

import importlib

from tests.exactness.programs.registry import PROGRAMS, Program, Trial

__all__ = ["PROGRAMS", "Program", "Trial"]

for _name in (
    "losses",
    "joint_rows",
    "sequences",
    "custom_steps",
    "generative",
    "optimizers",
    "modes",
    "loops",
    "applications",
):
    importlib.import_module(f"{__name__}.{_name}")
