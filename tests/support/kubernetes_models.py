"""Compares manifests with the models of Kubernetes's and Kubeflow's own Python clients, which are generated from their schemas.

The clients read what a server sends, and pass over fields that they do not know. Here each field must be known.
"""

from __future__ import annotations

import re
from typing import Any, List

import kubeflow.training.models as kubeflow_models
from kubernetes.client import models as kubernetes_models

__all__ = ["problems_of"]

_MODELS = {
    ("v1", "Service"): "V1Service",
    ("batch/v1", "Job"): "V1Job",
    ("networking.k8s.io/v1", "NetworkPolicy"): "V1NetworkPolicy",
    ("kubeflow.org/v1", "TFJob"): "KubeflowOrgV1TFJob",
}
_SCALARS = {"str": str, "int": int, "bool": bool, "float": (int, float), "datetime": str}
_QUANTITIES = ("limits", "requests")  # numbers, or text with a unit; the models say text
_QUANTITY = re.compile(r"\d+(\.\d+)?([munkMGTPE]|[KMGTPE]i)?")


def problems_of(manifest: Any) -> List[str]:
    """Returns what in a manifest does not fit the schema of its kind, each with its path.

    Args:
        manifest: one document of a YAML file.
    """
    name = _MODELS.get((manifest.get("apiVersion"), manifest.get("kind")))
    if name is None:
        return [f"no schema for {manifest.get('kind')} of {manifest.get('apiVersion')}"]
    return _in_object(manifest, name, manifest["kind"])


def _in_value(value: Any, kind: str, path: str) -> List[str]:
    of_list, of_map = re.fullmatch(r"list\[(.+)\]", kind), re.fullmatch(r"dict[(\[]str, (.+)[)\]]", kind)
    if of_list:
        if not isinstance(value, list):
            return [f"{path} must be a list"]
        return _each(enumerate(value), of_list[1], path)
    if of_map:
        if not isinstance(value, dict):
            return [f"{path} must be a map"]
        return _each(value.items(), of_map[1], path)
    if kind == "object":
        return []
    if kind in _SCALARS:
        fits = isinstance(value, _SCALARS[kind]) and (kind == "bool" or not isinstance(value, bool))
        return [] if fits else [f"{path} must be {kind}"]
    return _in_object(value, kind, path)


def _each(items: Any, kind: str, path: str) -> List[str]:
    return [problem for key, value in items for problem in _in_value(value, kind, f"{path}.{key}")]


def _in_object(value: Any, name: str, path: str) -> List[str]:
    if not isinstance(value, dict):
        return [f"{path} must be a map"]
    model = getattr(kubernetes_models, name, None) or getattr(kubeflow_models, name)
    attributes = {field: attribute for attribute, field in model.attribute_map.items()}
    problems = [f"{path}.{field} is unknown" for field in value if field not in attributes]
    known = {field: each for field, each in value.items() if field in attributes}
    try:
        model(**{attributes[field]: each for field, each in known.items()})
    except ValueError as error:
        problems.append(f"{path}: {error}")  # a required field is missing
    for field, each in known.items():
        if field in _QUANTITIES and name == "V1ResourceRequirements":
            problems += _in_quantities(each, f"{path}.{field}")
        else:
            problems += _in_value(each, model.openapi_types[attributes[field]], f"{path}.{field}")
    return problems


def _in_quantities(value: Any, path: str) -> List[str]:
    if not isinstance(value, dict):
        return [f"{path} must be a map"]
    return [
        f"{path}.{key} must be a quantity"
        for key, each in value.items()
        if not _QUANTITY.fullmatch(str(each))
    ]
