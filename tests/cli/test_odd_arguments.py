"""Arguments that nobody means: one clear error each, soon, and nothing done."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sbatch_router import shimfile
from sbatch_router.policycache import PolicyTrouble, find_policy

from .conftest import PROGRAM, Cli, Result
from .test_diagnose import submit, wait_for

POLICY = "version: 1\naccounts: [clive]\n"
#: As PATH and the like have it: not UTF-8.
BYTES = os.fsdecode(b"caf\xe9")


def call(place: Path, *argv: str) -> Result:
    """``sbatch-router ARGV...`` in a directory, without Slurm; it must end by itself."""
    done = subprocess.run(
        [PROGRAM, *argv],
        cwd=place,
        env={"PATH": "/nowhere", "HOME": str(place), "LANG": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=20,
    )
    assert "internal error" not in done.stderr
    assert "Traceback" not in done.stderr
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "d").mkdir()
    os.mkfifo(tmp_path / "fifo")
    os.mkfifo(tmp_path / "good.cases.yaml")
    (tmp_path / "good.yaml").write_text(POLICY)
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(1 << 40)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("fifo", "1: file: cannot be read: it is no regular file; expected a YAML file"),
        ("d", "1: file: cannot be read: Is a directory; expected a YAML file"),
        (".", "1: file: cannot be read: Is a directory; expected a YAML file"),
        ("/dev/zero", "1: file: cannot be read: it is no regular file; expected a YAML file"),
        ("huge", "1: file: is larger than 1 MiB; a policy is a few kilobytes"),
        ("none", "1: file: cannot be read: No such file or directory; expected a YAML file"),
        (BYTES, "1: file: cannot be read: No such file or directory; expected a YAML file"),
    ],
)
def test_check_what_is_no_policy(place: Path, file: str, why: str) -> None:
    assert call(place, "check", file) == (1, f"{file}:{why}\n", "")


def test_check_cases_that_are_a_pipe(place: Path) -> None:
    found = call(place, "check", "good.yaml")
    assert (found.rc, found.err) == (1, "")
    assert "good.cases.yaml:1: file: cannot be read: it is no regular file" in found.out


def test_a_policy_that_is_a_pipe_does_not_hold_the_shim(place: Path) -> None:
    with pytest.raises(PolicyTrouble, match="fifo:1: file: cannot be read: it is no regular file"):
        find_policy([str(place / "fifo")], {b"XDG_RUNTIME_DIR": b"/nowhere"})


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("check", ""), "an empty FILE"),
        (("run", "--", ""), "PROGRAM is empty"),
        (("run", "--dry-run", "", "x"), "PROGRAM is empty"),
        (("install-shim", ""), "it is empty; expected a directory"),
        (("install-shim", "--uninstall", ""), "it is empty; expected a directory"),
        (("snakemake-profile", ""), "it is empty; expected a directory"),
        (("init", "--output", ""), "--output is empty"),
    ],
)
def test_what_is_empty(place: Path, argv: tuple[str, ...], says: str) -> None:
    before = sorted(os.listdir(place))
    found = call(place, *argv)
    assert (found.rc, found.out) == (2, "")
    assert says in found.err
    assert sorted(os.listdir(place)) == before


@pytest.mark.parametrize("name", ["a b:c", ":", "x:/y"])
def test_no_colon_in_path(place: Path, name: str) -> None:
    found = call(place, "install-shim", name)
    assert (found.rc, found.out) == (1, "")
    assert found.err == (
        f"Error: {place / name}: PATH cannot hold a directory with a colon in its name; "
        "choose another\n"
    )
    assert not (place / name).exists()


@pytest.mark.parametrize("kind", ["text", "pipe", "directory", "link"])
def test_only_our_own_sbatch_is_replaced_or_removed(place: Path, kind: str) -> None:
    """Also what is no program: it was not ours to replace."""
    target = place / "d" / "sbatch"
    if kind == "text":
        target.write_text("notes\n")
    elif kind == "pipe":
        os.mkfifo(target)
    elif kind == "directory":
        target.mkdir()
    else:
        target.symlink_to("/nowhere")
    for more in ((), ("--uninstall",)):
        found = call(place, "install-shim", "d", *more)
        assert (found.rc, found.out) == (1, "")
        assert f"{target} is not a shim of ours" in found.err
        assert os.path.lexists(target)
    ours = shimfile.install(place / "other")
    ours.chmod(0o644)
    assert call(place, "install-shim", "other").rc == 0
    assert os.access(ours, os.X_OK)


def test_a_module_file_that_is_a_pipe(place: Path) -> None:
    found = call(place, "install-shim", "--module", "fifo", "x")
    assert (found.rc, found.out) == (1, "")
    assert "fifo is not a module file of ours" in found.err
    assert not (place / "x").exists()


@pytest.mark.parametrize("name", [BYTES, "a\nb", "\x1b[31m"])
def test_a_profile_in_a_directory_with_an_odd_name(place: Path, name: str) -> None:
    import yaml

    found = call(place, "snakemake-profile", name)
    assert found.rc == 0, found
    text = (place / name / "config.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text)["executor"] == "cluster-generic"
    assert "--profile DIRECTORY`" in text


@pytest.mark.cluster
def test_diagnose_an_id_that_is_none_of_mine(cli: Cli) -> None:
    cli.policy()
    alone = cli.run("diagnose", "99999999")
    unknown = "sbatch-router: 99999999: not one of your pending jobs (squeue --me)\n"
    assert alone == (1, "", unknown)
    assert cli.run("diagnose").out == "no pending jobs\n"
    cli.cluster.hold("bob", "-A", "clive", "--mem=300G", "-c2")
    job = submit(cli, "-A", "clive", "--mem=20G", "-c1")
    array = submit(cli, "-A", "clive", "--mem=20G", "-c1", "--array=1-4")
    wait_for(cli, job, array, reason="QOSGrpMemLimit")
    found = cli.run("diagnose", job, "abc", "", f"{array}_3", "99999999")
    assert found.rc == 1
    assert found.err == (
        "sbatch-router: abc: not one of your pending jobs (squeue --me)\n"
        "sbatch-router: '': not one of your pending jobs (squeue --me)\n"
        f"sbatch-router: {array}_3: an array's waiting tasks are one job: name {array}\n" + unknown
    )
    assert "1 pending job: 1 to look at" in found.out
    both = cli.run("diagnose", job, array)
    assert (both.rc, both.err) == (0, "")
    data = cli.run("diagnose", "--json", "99999999")
    assert (data.rc, data.err) == (1, unknown)
    assert '"jobs": []' in data.out
