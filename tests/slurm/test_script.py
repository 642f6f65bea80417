"""The batch script: directives, properties, and reading it without taking it from sbatch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sbatch_router.slurm.script import (
    READ_LIMIT,
    Directives,
    directives,
    objections,
    peek_script,
    read_properties,
    respool_stdin,
)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"#!/bin/sh\n#SBATCH -N2\ntrue\n#SBATCH -N3\n", ["-N2"]),
        (b"#!/bin/sh\n\n  \n # note\n#SBATCH -N2", ["-N2"]),
        (b"#!/bin/sh\n #SBATCH -N2\n", []),
        (b"#SBATCH--mem=5 -n\t4\n", ["--mem=5", "-n", "4"]),
        (b"#SLURM -N2\n", ["-N2"]),
        (b"#SBATCH -J 'a b' -A\"x y\"\n", ["-J", "a b", "-Ax y"]),
        (b'#SBATCH -J a\\"b -N2 # -N3\n', ["-J", 'a"b', "-N2"]),
        (b"#SBATCH -J a#b -N2\n", ["-J", "a"]),
        (b'#SBATCH -J "a#b" -N2\n', ["-J", "a#b", "-N2"]),
        (b"#SBATCH -J '' -N2\n#SBATCH x\n", ["-J", "x"]),  # an empty word ends its line
        (b"#SBATCH --comment= -N2\n", ["--comment=", "-N2"]),
        (b"#SBATCH -J \xff\xfe\n", ["-J", "\udcff\udcfe"]),
        (b"##SBATCH -N2\n# SBATCH -N3\n", []),
        (b"", []),
    ],
)
def test_directives(body: bytes, words: list[str]) -> None:
    assert directives(body) == Directives(tuple(words), ())


@pytest.mark.parametrize(
    ("body", "doubt"),
    [
        (b"#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2\n", "heterogeneous"),
        (b"#SBATCH PackJob\n", "heterogeneous"),
        (b"#SBATCH -J 'a\n", "unmatched quote"),
        (b"#SBATCH -J a\\ b\n", "escapes a blank"),
        (b"#SBATCH : -N2\n", "unexpected ':'"),
    ],
)
def test_doubtful_directives(body: bytes, doubt: str) -> None:
    assert doubt in directives(body).doubts[0]


def test_what_sbatch_refuses() -> None:
    assert objections(b"#!/bin/sh\ntrue") == ()
    for body in (b"", b" \n\t", b"true\n", b"#!/bin/sh\n\0", b"#!/bin/sh\r\ntrue\r\n"):
        assert objections(body)


def test_properties() -> None:
    job = b'#!/bin/sh\n# properties = {"rule": "a", "threads": 2}\ntrue\n'
    assert read_properties(job) == {"rule": "a", "threads": 2}
    for other in (b"#!/bin/sh\n", b"#!/bin/sh\n# properties = {bad\n", b"x # properties = {}\n"):
        assert read_properties(other) == {}


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_bytes(b"#!/bin/sh\n" + b"x" * (2 * READ_LIMIT))
    assert len(peek_script(str(tmp_path / "job.sh"), {}).script or b"") == READ_LIMIT


def test_a_name_is_looked_for_as_sbatch_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "job").write_bytes(b"path")
    monkeypatch.chdir(tmp_path)
    environ = {"PATH": f"/nowhere:{tmp_path}/bin"}
    assert peek_script("job", environ).script == b"path"
    assert peek_script("./job", environ).script is None
    (tmp_path / "job").mkdir()  # a directory does not hide the file further on
    assert peek_script("job", environ).script == b"path"
    (tmp_path / "job").rmdir()
    (tmp_path / "job").write_bytes(b"here")
    assert peek_script("job", environ).script == b"here"


def test_what_can_be_read_once_is_left_alone(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"#!/bin/sh\n")
    os.mkfifo(tmp_path / "fifo")
    for name in (f"/dev/fd/{read_end}", str(tmp_path / "fifo"), str(tmp_path), "/dev/null", "no"):
        assert peek_script(name, {}).script is None
    os.close(write_end)
    assert os.read(read_end, 100) == b"#!/bin/sh\n"
    os.close(read_end)


def test_a_file_on_stdin_keeps_its_offset(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"junk#!/bin/sh\n")
    fd = os.open(tmp_path / "f", os.O_RDONLY)
    os.lseek(fd, 4, os.SEEK_SET)
    found = peek_script(None, {}, fd)
    assert (found.script, found.taken) == (b"#!/bin/sh\n", None)
    assert os.lseek(fd, 0, os.SEEK_CUR) == 4
    os.close(fd)


def test_a_pipe_on_stdin_is_taken_whole_and_put_back() -> None:
    data = b"#!/bin/sh\n" + os.urandom(50000)
    read_end, write_end = os.pipe()
    os.write(write_end, data)
    os.close(write_end)
    assert peek_script(None, {}, read_end, may_take=False).script is None
    found = peek_script(None, {}, read_end)
    assert found.taken == found.script == data
    fd = respool_stdin(found.taken or b"")
    assert os.read(fd, 10**6) == data
    os.close(fd)
    os.close(read_end)


def test_terminals_and_closed_descriptors_are_not_read() -> None:
    master, slave = os.openpty()
    for fd in (slave, 987):
        found = peek_script(None, {}, fd)
        assert (found.script, found.taken) == (None, None)
        assert found.why
    os.close(master)
    os.close(slave)
