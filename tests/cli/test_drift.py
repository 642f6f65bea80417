"""`check --live` remembers limits, and tells which changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sbatch_router.cli import _drift

from .conftest import Cli


@pytest.mark.parametrize(
    ("old", "new", "texts"),
    [
        ({"GrpTRES gres/gpu": 3}, {"GrpTRES gres/gpu": 1}, ["GrpTRES gres/gpu was 3, is 1"]),
        ({"GrpTRES mem": 831488}, {"GrpTRES mem": 320000}, ["GrpTRES mem was 812G, is 312.5G"]),
        ({"GrpTRES": None}, {"GrpTRES cpu": 4}, ["GrpTRES cpu was unlimited, is 4"]),
        ({"GrpTRES cpu": 4}, {"GrpTRES": None}, ["GrpTRES cpu was 4, is unlimited"]),
        ({"GrpJobs": None}, {"GrpJobs": 0}, ["GrpJobs was unlimited, is 0"]),
        ({"MaxWallPJ": 1440}, {"MaxWallPJ": 90}, ["MaxWallPJ was 1d, is 1h30m"]),
        ({"GrpTRES cpu": 4}, {"GrpTRES cpu": 4}, []),
        # What one of the two answers does not show did not change.
        ({}, {"GrpTRES cpu": 4}, []),
        ({"MaxTRESPU cpu": 4}, {"GrpTRES cpu": 4}, []),
    ],
)
def test_changes(old: _drift.Limits, new: _drift.Limits, texts: list[str]) -> None:
    assert _drift.changes(old, new) == texts


def test_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "limits.json")
    assert _drift.load(path) == {}
    stored = {"c": {"qos x": ("2026-01-02", {"GrpTRES cpu": 4, "GrpJobs": None})}}
    assert _drift.save(path, stored) == ""
    assert _drift.load(path) == stored
    assert Path(path).stat().st_mode & 0o777 == 0o600
    assert [p.name for p in Path(path).parent.iterdir()] == ["limits.json"]


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", "{}", '{"version": 2, "clusters": {}}', '{"version": 1, "clusters": [1]}',
     '{"version": 1, "clusters": {"c": {"q": 1}}}', '{"version": 1, "clusters": {"c": null}}'],
)  # fmt: skip
def test_a_broken_file_is_no_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "limits.json").write_text(text)
    assert _drift.load(str(tmp_path / "limits.json")) == {}


def test_where_it_cannot_be_written() -> None:
    assert _drift.save("/proc/x/limits.json", {}).startswith("/proc/x: ")
    assert _drift.save("", {}) == "HOME is not set"


@pytest.mark.cluster
def test_on_a_cluster(cli: Cli) -> None:
    cli.cluster.apply(
        {
            "users": {"dora": {"default_account": "drift"}},
            "qos": {"drift": {"GrpTRES": "cpu=80,mem=812G,gres/gpu=3"}},
            "accounts": {
                "drift": {
                    "parent": "dept",
                    "qos": ["drift"],
                    "default_qos": "drift",
                    "users": ["dora"],
                },
                "clive": {"users": ["dora"]},
            },
        }
    )
    path = cli.policy("version: 1\naccounts:\n- clive\n- drift\n", "dora")
    fine = f"{path}: ok (2 accounts, 0 rules)\n"
    assert cli.run("check", "--live", user="dora") == (0, fine, "")
    assert cli.run("check", "--live", user="dora") == (0, fine, "")
    cli.cluster.apply({"qos": {"drift": {"GrpTRES": "cpu=80,mem=320000M,gres/gpu=1"}}})
    found = cli.run("check", "--live", user="dora")
    state = cli.cluster.home("dora") / ".local/state/sbatch-router/limits.json"
    (cluster,) = json.loads(state.read_text())["clusters"].values()
    day = cluster["qos drift"]["seen"]
    assert (found.rc, found.err) == (0, "")
    assert found.out == (
        f"{path}:4: warning: accounts[2]: drift: GrpTRES mem was 812G, is 312.5G (seen on {day})\n"
        f"{path}:4: warning: accounts[2]: drift: GrpTRES gres/gpu was 3, is 1 (seen on {day})\n"
        + fine
    )
    assert cli.run("check", "--live", user="dora") == (0, fine, "")
    # The file alone asks nothing and remembers nothing.
    state.unlink()
    assert cli.run("check", user="dora") == (0, fine, "")
    assert not state.exists()
