"""Evaluates a model while it is trained, in a separate process."""

from __future__ import annotations

from tf_strategies.evaluator.sidecar_evaluator import Evaluation, SidecarEvaluator

__all__ = ["Evaluation", "SidecarEvaluator"]
