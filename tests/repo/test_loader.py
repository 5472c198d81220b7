"""The library that is loaded is the one built for the TensorFlow that runs.

Anything else is refused with the remedy.
"""

from __future__ import annotations

import json

import pytest

from tf_strategies.errors import BuildMismatchError
from tf_strategies.native import loader


def make_library(libraries, folder: str, version: str, git_version: str):
    path = libraries / f"tf-{folder}" / loader.NAME
    path.parent.mkdir()
    path.touch()
    (path.parent / "build_info.json").write_text(
        json.dumps({"tensorflow": version, "tensorflow_git": git_version})
    )
    return path


def test_library_of_the_running_version_is_chosen(tmp_path):
    make_library(tmp_path, "2.15.1", "2.15.1", "abc")
    newest = make_library(tmp_path, "2.21.0", "2.21.0", "def")
    assert loader.find_library("2.21.0", "def", tmp_path) == newest


def test_missing_library_names_what_is_built_and_the_command(tmp_path):
    make_library(tmp_path, "2.15.1", "2.15.1", "abc")
    with pytest.raises(
        BuildMismatchError, match=r"runs TensorFlow 2\.21\.0.* only for TensorFlow 2\.15\.1.*pip install"
    ):
        loader.find_library("2.21.0", "def", tmp_path)


def test_nothing_built_names_the_command(tmp_path):
    with pytest.raises(BuildMismatchError, match=r"for no TensorFlow at all.*pip install"):
        loader.find_library("2.21.0", "def", tmp_path)


@pytest.mark.parametrize(("version", "git_version"), [("2.15.0", "abc"), ("2.15.1", "another commit")])
def test_record_of_another_tensorflow_is_refused_naming_both(tmp_path, version, git_version):
    make_library(tmp_path, "2.15.1", version, git_version)
    with pytest.raises(BuildMismatchError) as raised:
        loader.find_library("2.15.1", "abc", tmp_path)
    for part in ("2.15.1 (abc)", f"{version} ({git_version})", "pip install"):
        assert part in str(raised.value)


def test_unreadable_record_is_refused(tmp_path):
    path = make_library(tmp_path, "2.15.1", "2.15.1", "abc")
    path.with_name("build_info.json").write_text("{")
    with pytest.raises(BuildMismatchError, match=r"build_info\.json.*cannot be read"):
        loader.find_library("2.15.1", "abc", tmp_path)


def test_library_that_is_no_library_is_refused(tmp_path, monkeypatch):
    tf = pytest.importorskip("tensorflow")
    path = make_library(tmp_path, tf.__version__, tf.__version__, tf.version.GIT_VERSION)
    path.write_text("not a library")
    monkeypatch.setattr(loader, "find_library", lambda *version: path)
    with pytest.raises(BuildMismatchError, match="does not load into TensorFlow"):
        loader.library.__wrapped__()


def test_record_tells_how_the_library_was_built():
    tf = pytest.importorskip("tensorflow")
    info = loader.build_info()
    assert info["tensorflow"] == tf.__version__
    assert any("_GLIBCXX_USE_CXX11_ABI" in flag for flag in info["abi_flags"])
    assert info["compiler"]
    assert info["ucx"]


def test_both_faces_are_one_library():
    assert loader.library() is loader.library()
    assert loader.core().tfs_last_error
