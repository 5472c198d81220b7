"""The table of supported versions: the package, tests/matrix/versions.txt and docs/versions.md have the same."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.repo import layers
from tf_strategies.keras.versions import TESTED, check_versions, number

pytestmark = pytest.mark.any_line
sys.path.insert(0, str(layers.ROOT / "tools"))

import matrix  # noqa: E402
from find_python import find_python  # noqa: E402

LINES = matrix.read_lines(matrix.VERSIONS.read_text())


def test_the_package_knows_what_the_matrix_runs() -> None:
    run = {
        (f(line.tensorflow), package, f(version))
        for line in LINES
        for package, version in [line.keras.split("==")]
    }
    assert run == set(TESTED)


def f(version: str) -> str:
    return ".".join(map(str, number(version)))


def test_the_document_shows_the_table() -> None:
    text = matrix.DOCUMENT.read_text()
    shown = text[text.index(matrix.BEGIN) + len(matrix.BEGIN) : text.index(matrix.END)].strip()
    assert shown == matrix.markdown(LINES)


def test_no_line_fails() -> None:
    failing = [line for line in LINES if line.result == matrix.FAILS]
    assert not failing, "repair them, or take them from the table and from tf_strategies/keras/versions.py"


def test_a_line_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match=r"line 2 of .* is '2\.18\.1 keras==3\.8\.0'"):
        matrix.read_lines("# a comment\n2.18.1 keras==3.8.0")


def test_an_old_keras_is_refused_with_what_to_install() -> None:
    oldest = min(
        number(version) for _, package, version in TESTED if package == "keras" and version[0] == "3"
    )
    with pytest.raises(ImportError, match=rf"Keras {oldest[0]}\.{oldest[1]} to 3\.\d+.*pip install"):
        check_versions("keras", "3.0.5", "2.16.1")
    with pytest.raises(ImportError, match=r"keras 2\.14\.0"):
        check_versions("keras", "2.14.0", "2.15.1")


@pytest.mark.parametrize(
    ("keras", "tensorflow", "expected"),
    [
        ("3.99.0", "2.18.0", "keras 3.99.0 is newer than what tf_strategies has been tested with, 3."),
        ("3.99.0.dev2026", "2.18.0", "keras 3.99.0.dev2026 is newer"),
        (
            "3.8.0",
            "2.99.0",
            "TensorFlow 2.99.0 is newer than what tf_strategies has been tested with, 2.15 to 2.",
        ),
        ("3.8.0", "2.18.0", ""),
        ("2.15.0", "2.15.1", ""),
    ],
)
def test_a_newer_version_is_warned_of(
    keras: str, tensorflow: str, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING", logger="absl"):
        check_versions("keras", keras, tensorflow)
    assert (expected in caplog.text) if expected else not caplog.text


def test_an_old_setuptools_is_refused_in_one_line() -> None:
    program = "import setuptools; setuptools.__version__ = '68.2.0'; exec(open('setup.py').read())"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=layers.ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "setuptools 68.2.0 is too old" in done.stderr


def test_an_interpreter_is_found_or_missed_in_one_line() -> None:
    here = f(sys.version)
    assert find_python(here, here) is not None
    assert find_python("3.98", "3.99") is None
    done = subprocess.run(
        [sys.executable, layers.ROOT / "tools" / "find_python.py", "3.98", "3.99"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "a Python from 3.98 to 3.99" in done.stderr
