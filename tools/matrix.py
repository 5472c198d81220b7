"""Runs the tests marked `matrix` on every TensorFlow and Keras of tests/matrix/versions.txt, and writes down the results.

Usage: python3 tools/matrix.py [ONLY]. ONLY is a part of a line, such as "2.18" or "keras==3.8.0"; without it all are run.

Each TensorFlow has one environment, and the operations built for it. Each Keras has a folder of its own, which comes first on
PYTHONPATH. Runs come one after another; each is ended with all that it started when its time is over.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import sys
from pathlib import Path

from find_python import find_python
from logged_commands import install, run_logged

__all__ = ["Line", "markdown", "read_lines"]

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ROOT / "tests" / "matrix" / "versions.txt"
DOCUMENT = ROOT / "docs" / "versions.md"
ENVIRONMENTS = Path(os.environ.get("TFS_MATRIX_FOLDER", ROOT / ".venv" / "matrix"))
PACKAGE = os.environ.get("TFS_MATRIX_TENSORFLOW", "tensorflow-cpu")
TESTS = ("tests/unit", "tests/cluster", "tests/exactness")
TEST_PACKAGES = (
    "pip",
    "setuptools>=77,<81",
    "wheel",
    "libucx-cu12",
    "absl-py",
    "grpcio",
    "hypothesis",
    "pytest>=8",
    "pytest-timeout>=2.3",
)
RUN_SECONDS = 900
PASSES, FAILS, UNTRIED = "passes", "fails", "untried"
BEGIN, END = "<!-- from tests/matrix/versions.txt -->", "<!-- end -->"


@dataclasses.dataclass
class Line:
    """One line of the table.

    Attributes:
        tensorflow: the version, such as "2.18.1".
        keras: what pip installs, such as "keras==3.8.0".
        python: the version of the interpreter, such as "3.12".
        result: "passes", "fails" or "untried".
        date: the day of the result, "-" without one.
    """

    tensorflow: str
    keras: str
    python: str
    result: str
    date: str

    @property
    def words(self) -> list[str]:
        return [self.tensorflow, self.keras, self.python, self.result, self.date]


def read_lines(text: str) -> list[Line]:
    """Returns the lines of the table.

    Raises:
        ValueError: a line has another form.
    """
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != len(dataclasses.fields(Line)) or words[3] not in (PASSES, FAILS, UNTRIED):
            raise ValueError(
                f"line {number} of {VERSIONS} is {line!r}; expected TensorFlow, Keras, Python, {PASSES}, {FAILS} or {UNTRIED}, "
                "and a date"
            )
        lines.append(Line(*words))
    return lines


def markdown(lines: list[Line]) -> str:
    """Returns the table of docs/versions.md."""
    rows = ["| TensorFlow | Keras | Python | result | date |", "|---|---|---|---|---|"]
    rows += [f"| {' | '.join(line.words).replace('==', ' ')} |" for line in lines]
    return "\n".join(rows)


def write(lines: list[Line]) -> None:
    """Writes the table to its file and to the document."""
    comments = [line for line in VERSIONS.read_text().splitlines() if line.startswith("#")]
    rows = ["{:<13} {:<24} {:<7} {:<8} {}".format(*line.words).rstrip() for line in lines]
    VERSIONS.write_text("\n".join([*comments, *rows]) + "\n")
    text = DOCUMENT.read_text()
    before, after = text[: text.index(BEGIN)], text[text.index(END) :]
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{markdown(lines)}\n\n{after}")


def environment(line: Line) -> Path:
    """Returns the interpreter of the environment for a TensorFlow, which is made and built on first use."""
    folder = ENVIRONMENTS / f"tf-{line.tensorflow}"
    python = folder / "bin" / "python"
    if not (folder / ".installed").exists():
        creator = find_python(line.python, line.python)
        if creator is None:
            raise SystemExit(
                f"TensorFlow {line.tensorflow} is run on Python {line.python}, which is not here: install it"
            )
        run_logged([creator, "-m", "venv", "--clear", str(folder)], f"matrix-venv-{line.tensorflow}", 60)
        packages = [*TEST_PACKAGES, f"{PACKAGE}=={line.tensorflow}"]
        install(python, ["--upgrade", *packages], f"matrix-tensorflow-{line.tensorflow}")
        (folder / ".installed").touch()
    built = folder / ".built"
    if not built.exists() or built.stat().st_mtime < max(path.stat().st_mtime for path in _sources()):
        install(
            python, ["--no-build-isolation", "--no-deps", "-e", str(ROOT)], f"matrix-build-{line.tensorflow}"
        )
        built.touch()
    return python


def _sources() -> list[Path]:
    """Returns what the operations are built from."""
    return [
        *(
            ROOT / name
            for name in ("setup.py", "pyproject.toml", "tools/compile_ops.py", "tools/find_tensorflow.py")
        ),
        *(path for path in (ROOT / "ops").rglob("*") if path.suffix in (".cc", ".h", ".map")),
    ]


def keras_folder(line: Line, python: Path) -> Path:
    """Returns the folder with this Keras alone."""
    folder = ENVIRONMENTS / "keras" / line.keras.replace("==", "-")
    if not (folder / ".installed").exists():
        install(
            python, ["--no-deps", "--upgrade", "--target", str(folder), line.keras], f"matrix-{line.keras}"
        )
        (folder / ".installed").touch()
    return folder


def passes(line: Line) -> bool:
    """Runs the tests of one line; returns True if all pass."""
    python = environment(line)
    environ = {
        **os.environ,
        "PYTHONPATH": str(keras_folder(line, python)),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "OMP_NUM_THREADS": "1",
    }
    environ.pop("TF_USE_LEGACY_KERAS", None)
    if line.keras.startswith("tf_keras"):
        environ["TF_USE_LEGACY_KERAS"] = "1"
    command = [
        str(python),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--no-budgets",
        "-m",
        "matrix",
        *TESTS,
    ]
    return run_logged(command, f"matrix-{line.tensorflow}-{line.keras}", RUN_SECONDS, environ, may_fail=True)


def main(only: str = "") -> int:
    """Runs the lines that contain `only`; returns the exit status."""
    lines = read_lines(VERSIONS.read_text())
    chosen = [line for line in lines if only in f"{line.tensorflow} {line.keras}"]
    if not chosen:
        raise SystemExit(f"no line of {VERSIONS} has {only!r}")
    for line in chosen:
        line.result = PASSES if passes(line) else FAILS
        line.date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        write(lines)
    print(markdown(chosen))
    return int(any(line.result == FAILS for line in chosen))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
