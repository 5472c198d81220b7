"""Evaluates a model beside its training, in a process of its own."""

from __future__ import annotations

from tf_strategies.evaluator.sidecar_evaluator import Evaluation, SidecarEvaluator

__all__ = ["Evaluation", "SidecarEvaluator"]
