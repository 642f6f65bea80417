"""The log of decisions: JSON lines that other tools read, whoever else writes at the time."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from .conftest import Bed

POLICY = "version: 1\naccounts: [clive, maigan]\nrules: [{name: all, order: mem}]\ncache: 0\n"
HELD = ("-H", "--mem=10M", "--wrap", "true")


def entries(path: Path) -> list[dict[str, Any]]:
    """Every line, parsed: one object each, and nothing beside them."""
    text = path.read_bytes()
    assert text.endswith(b"\n")
    found = [json.loads(line) for line in text.splitlines()]
    assert all(isinstance(entry, dict) for entry in found)
    return found


@pytest.fixture
def home(bed: Bed, tmp_path: Path) -> Path:
    """A home of alice's with no log in it."""
    return bed.private(f"home-{tmp_path.name}", "alice")


def log_of(home: Path) -> Path:
    return home / ".local" / "state" / "sbatch-router" / "decisions.jsonl"


def test_what_is_logged_of_each_kind_of_decision(bed: Bed, home: Path) -> None:
    env = {"HOME": str(home)}
    bed.cluster.hold("bob", "-A", "clive", "--mem=320000M", "-c1")
    bed.sbatch("-J", "routed", *HELD, policy=POLICY, env=env)
    bed.sbatch("-A", "clive", "--array=1-3", *HELD, policy=POLICY, env=env)
    bed.sbatch("-A", "other", *HELD, policy=POLICY, env=env)
    assert bed.sbatch("--mem=900G", "--wrap", "x", policy=POLICY, env=env).rc == 77
    bed.cluster.hold("bob", "-A", "maigan", "--mem=640000M", "-c1")
    assert bed.sbatch(*HELD, policy=POLICY, env=env).rc == 75
    # What is not decided is not logged: sbatch's own business, and switched off.
    bed.sbatch("--version", policy=POLICY, env=env)
    bed.sbatch("missing.sh", policy=POLICY, env=env)
    bed.sbatch(*HELD, policy=POLICY, env={**env, "SBATCH_ROUTER": "off"})
    found = entries(log_of(home))
    assert [(e["action"], e["account"], e["exit_code"]) for e in found] == [
        ("route", "maigan", 0),
        ("keep", "clive", 0),
        ("pass", "", 0),
        ("refuse", "", 77),
        ("refuse", "", 75),
    ]
    for entry in found:
        assert (entry["event"], entry["level"]) == ("decision", "info")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", entry["timestamp"])
        assert entry["source"] in ("scontrol", "pyslurm")
    first = found[0]
    assert (first["job_name"], first["rule"], first["changed"]) == ("routed", "all", True)
    assert first["tres"]["mem"] == 10
    # Where plain sbatch would have gone, where a place was chosen or kept.
    assert [e["unrouted"] for e in found] == ["clive/clive", "clive/clive", "", "", ""]
    assert first["verdicts"] == {"clive/clive": "waits_others", "maigan/maigan": "fits"}
    assert first["reasons"] == {"clive/clive": "QOSGrpMemLimit"}
    assert found[1]["array_tasks"] == 3
    assert [e["timestamp"] for e in found] == sorted(e["timestamp"] for e in found)
    assert log_of(home).stat().st_mode & 0o777 == 0o600


def test_the_name_is_the_one_that_sbatch_gives(bed: Bed, home: Path) -> None:
    script = bed.write_script("na me.sh", "#!/bin/sh\nsleep 300\n")
    directive = bed.write_script("named.sh", "#!/bin/sh\n#SBATCH -J inside\nsleep 300\n")
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((script, "argument"), {}),
        (("--wrap", "true"), {}),
        ((), {"input": b"#!/bin/sh\ntrue\n"}),
        ((directive,), {}),
        (("-J", "given", directive), {}),
        ((script,), {"env": {"SBATCH_JOB_NAME": "env"}}),
        (("-J", "", script), {}),
    ]
    jobs = []
    for args, options in calls:
        env = {"HOME": str(home), **options.pop("env", {})}
        done = bed.sbatch("-H", "--mem=10M", *args, policy=POLICY, env=env, **options)
        jobs.append(done.job)
    names = dict(
        line.split(" ", 1)
        for line in bed.cluster.run("squeue", "-h", "-o", "%A %j").stdout.splitlines()
    )
    assert [e["job_name"] for e in entries(log_of(home))] == [names[job] for job in jobs]
    assert names[jobs[0]] == "na me.sh"


def test_appends_of_many_at_once_do_not_mix(bed: Bed, home: Path) -> None:
    """Lines far longer than a page, from processes that write at the same time."""
    names = [chr(97 + n) * 60000 for n in range(8)]
    env = {"HOME": str(home)}
    started = [
        bed.popen(["sbatch", "-J", name, *HELD], policy=POLICY, env=env) for name in names * 2
    ]
    for process in started:
        process.communicate(timeout=60)
    found = entries(log_of(home))
    assert sorted(e["job_name"] for e in found) == sorted(names * 2)
    assert len({e["pid"] for e in found}) == 16


def test_any_text_is_valid_json(bed: Bed, home: Path) -> None:
    names = [
        'a"b\\c',
        "tab\tnew\nline\x01\x7f",
        "caf\udce9\udcff",
        "\u00e9\u4e2d\U0001f600",
        "\u2028",
    ]
    for name in names:
        args = [b"-J", os.fsencode(name), *map(os.fsencode, HELD)]
        bed.sbatch(*args, policy=POLICY, env={"HOME": str(home)})
    path = log_of(home)
    assert path.read_bytes().isascii()
    assert [e["job_name"] for e in entries(path)] == names


def test_a_torn_line_does_not_take_the_next_one_along(bed: Bed, home: Path) -> None:
    """Half a line, as a full disk leaves it: one entry is lost, not two."""
    env = {"HOME": str(home)}
    bed.sbatch(*HELD, policy=POLICY, env=env)
    path = log_of(home)
    with open(path, "a") as file:
        file.write('{"event":"deci')
    bed.sbatch(*HELD, policy=POLICY, env=env)
    lines = path.read_text().splitlines()
    assert len(lines) == 3
    assert [json.loads(line)["action"] for line in (lines[0], lines[2])] == ["route", "route"]


def test_xdg_state_home(bed: Bed, home: Path) -> None:
    state = bed.private(f"{home.name}/state", "alice")
    for value in (str(state), "relative", ""):
        env = {"HOME": str(home), "XDG_STATE_HOME": value}
        cwd = bed.private(f"{home.name}/cwd", "alice")
        assert bed.sbatch(*HELD, policy=POLICY, env=env, cwd=cwd).rc == 0
        # A relative path is to be ignored (XDG), not taken from wherever one is.
        assert list(cwd.iterdir()) == []
    assert len(entries(state / "sbatch-router" / "decisions.jsonl")) == 1
    assert len(entries(log_of(home))) == 2


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "others", "file above"])
def test_a_log_that_is_none_is_left_alone(bed: Bed, home: Path, kind: str) -> None:
    path = log_of(home)
    target = bed.private("target", "alice") / "file"
    target.write_text("")
    if kind == "file above":
        (home / ".local").write_text("")
    else:
        path.parent.mkdir(parents=True)
        for part in (path.parent, path.parent.parent, path.parent.parent.parent):
            os.chown(part, bed.cluster.uid("alice"), -1)
    if kind == "fifo":
        os.mkfifo(path, 0o666)
    elif kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(target)
    elif kind == "others":
        path.write_text("")
        path.chmod(0o600)
    result = bed.sbatch(*HELD, policy=POLICY, env={"HOME": str(home)}, timeout=20)
    assert bed.where(result.job) == "maigan/maigan"
    assert len(result.lines) == 1
    assert target.read_text() == ""


def test_without_a_home_there_is_no_log(bed: Bed) -> None:
    argv = ["env", "-u", "HOME", "sbatch", *HELD]
    result = bed.call(argv, policy=POLICY)
    assert bed.where(result.job) == "maigan/maigan"
    assert not Path("/.local/state/sbatch-router").exists()
