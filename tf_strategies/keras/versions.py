"""Lists the versions of Keras and TensorFlow that were tested together, and checks the installed ones.

`make test-matrix` runs the versions in docs/versions.md and tests/matrix/versions.txt. A test compares both
with this table.
"""

from __future__ import annotations

from typing import Tuple

from absl import logging

__all__ = ["TESTED", "check_versions", "remedy"]

# TensorFlow, the package of Keras, its version.
TESTED: Tuple[Tuple[str, str, str], ...] = (
    ("2.15", "keras", "2.15"),
    ("2.16", "keras", "3.3"),
    ("2.16", "tf_keras", "2.16"),
    ("2.17", "keras", "3.4"),
    ("2.17", "keras", "3.5"),
    ("2.18", "keras", "3.6"),
    ("2.18", "keras", "3.7"),
    ("2.18", "keras", "3.8"),
    ("2.19", "keras", "3.9"),
    ("2.19", "keras", "3.10"),
    ("2.20", "keras", "3.11"),
    ("2.20", "keras", "3.12"),
    ("2.21", "keras", "3.13"),
    ("2.21", "keras", "3.14"),
    ("2.21", "keras", "3.15"),
    ("2.21", "tf_keras", "2.21"),
)


def check_versions(name: str, version: str, tensorflow: str) -> None:
    """Refuses a Keras that is older than all tested versions, and warns about a Keras or TensorFlow that is newer.

    Args:
        name: "keras" or "tf_keras".
        version: the version of this package.
        tensorflow: the version of TensorFlow.

    Raises:
        ImportError: the Keras is too old.
    """
    tested = [number(each) for _, package, each in TESTED if package == name and _is_alike(each, version)]
    if not tested or number(version) < min(tested):
        raise ImportError(
            f"tf_strategies cannot train with {name} {version} on several replicas. {remedy(name)}"
        )
    if number(version) > max(tested):
        logging.warning(
            "%s %s is newer than what tf_strategies has been tested with, %s to %s. Compare a short training with one of a "
            "single process, or install a tested version.",
            name,
            version,
            _text(min(tested)),
            _text(max(tested)),
        )
    newest = max(number(each) for each, _, _ in TESTED)
    if number(tensorflow) > newest:
        logging.warning(
            "TensorFlow %s is newer than what tf_strategies has been tested with, %s to %s.",
            tensorflow,
            _text(min(number(each) for each, _, _ in TESTED)),
            _text(newest),
        )


def remedy(name: str) -> str:
    """Returns a sentence that says which tested versions to install."""
    three = sorted(number(each) for _, package, each in TESTED if package == "keras" and number(each)[0] == 3)
    two = sorted(number(each) for _, package, each in TESTED if package == "tf_keras")
    if name == "tf_keras":
        return f"Install tf_keras {_text(two[0])} to {_text(two[-1])}, of the version of your TensorFlow"
    return (
        f"Install Keras {_text(three[0])} to {_text(three[-1])}, Keras 2.15 with TensorFlow 2.15, or tf_keras {_text(two[0])} to "
        f"{_text(two[-1])} with TF_USE_LEGACY_KERAS=1. For example: "
        f'pip install "keras>={_text(three[0])},<={_text(three[-1])}.99"'
    )


def number(version: str) -> Tuple[int, int]:
    """Returns the first two numbers of a version, to compare versions."""
    major, _, rest = version.partition(".")
    return int(major), int(rest.partition(".")[0])


def _is_alike(one: str, other: str) -> bool:
    """Returns True if both are Keras 2, or both are Keras 3. The two have different implementations."""
    return number(one)[0] == number(other)[0]


def _text(version: Tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
