"""strip-blocked: the seed's 35 configs, and every odd file it may meet. Needs no Slurm."""

# ruff: noqa: E501

from __future__ import annotations

import difflib
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sbatch_router import strip
from sbatch_router.strip import NoAccounts, Refused

POLICY = """\
version: 1
accounts: [maigan]
blocked:
  - {account: clive, reason: throttled to 1 GPU and regularly hammered}
  - {account: brusko, reason: full since March}
"""

MAIN = "import sys; from sbatch_router.cli import main; main()"


def run(tmp_path: Path, *argv: str, policy: str = POLICY) -> Any:
    file = tmp_path / "policy.yaml"
    file.write_text(policy)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "SBATCH_ROUTER_POLICY": str(file),
    }
    return subprocess.run(
        [sys.executable, "-c", MAIN, "strip-blocked", *argv],
        capture_output=True,
        text=True,
        env=env,
        cwd=tmp_path,
        check=False,
    )


def project(number: int) -> str:
    """A project config of its own style: indents, quotes, comments, line ends, order."""
    pick = random.Random(number)
    dash = " " * pick.choice([2, 4])
    inner = pick.choice([" ", "   "])
    quote = pick.choice(["", '"', "'"])
    lines = [f"# project {number}: µm, {pick.choice(['spleen', 'tonsil'])}", "---"]
    lines += [f"dataset: src_CX_19-{number:03d}   # as on disk", "channels: [DAPI,   CD3,CD20]", ""]
    lines += ["resources:", "  # slots per account", "  accounts:"]
    blocks = [
        ["# the shared one", ("clive", 3, 8)],
        ["# ours", ("maigan", 2, 4)],
        ["# old", ("brusko", 1, 1)],
    ]
    pick.shuffle(blocks)
    for comment, (name, gpus, cpus) in blocks:
        lines.append(f"{dash}{comment}")
        lines.append(f"{dash}-{inner}name: {quote}{name}{quote}")
        keys = dash + " " + inner
        lines += [f"{keys}gpu_slots: {gpus}   # {pick.random()}", f"{keys}cpu_slots: {cpus}"]
        if pick.random() < 0.5:
            lines.append("")
    lines += ["  total_gpu_slots: 6  # sum", "  total_cpu_slots: 13", "  total_slots: 19"]
    lines += ["", "stitch:", "    overlap: 0.30", "    note: >-", "      folded", "      text"]
    end = pick.choice(["\n", "\r\n"])
    return end.join(lines) + pick.choice(["", end, end * 3])


ODD = "# no accounts here\nresources:\n  gpus: 2\n"


@pytest.fixture
def projects(tmp_path: Path) -> list[Path]:
    files = []
    for number in range(35):
        file = tmp_path / "KINTSUGI_Projects" / f"p{number:02d}" / "workflow" / "config.yaml"
        file.parent.mkdir(parents=True)
        file.write_bytes((ODD if number == 17 else project(number)).encode())
        file.chmod(0o640)
        files.append(file)
    return files


def check_only_that_changed(before: bytes, after: bytes) -> None:
    """Nothing is added but rewritten totals; nothing goes but entries of blocked accounts."""
    old, new = before.decode().split("\n"), after.decode().split("\n")
    removed, added = [], []
    for tag, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            removed += old[i:j]
            added += new[k:m]
    keys = ("total_gpu_slots:", "total_cpu_slots:", "total_slots:")
    assert all(line.strip().startswith(keys) for line in added), added
    entry = ("name:", "-", "gpu_slots:", "cpu_slots:")
    assert all(line.strip().startswith(keys + entry) for line in removed), removed


def test_the_seeds_35_projects(tmp_path: Path, projects: list[Path]) -> None:
    before = {file: file.read_bytes() for file in projects}
    pattern = str(tmp_path / "KINTSUGI_Projects/*/workflow/config.yaml")
    dry = run(tmp_path, pattern)
    assert dry.returncode == 0, dry.stderr
    assert dry.stdout.splitlines()[-2] == (
        "34 of 35 would be updated, 0 references left (clive, brusko); 1 without an accounts list"
    )
    assert f"{projects[17]}: no accounts at resources.accounts: left as it is" in dry.stderr
    assert {file: file.read_bytes() for file in projects} == before
    assert not list(tmp_path.glob("**/*.bak"))

    done = run(tmp_path, "--write", pattern)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == (
        "34 of 35 updated, 0 references left (clive, brusko); 1 without an accounts list"
    )
    for number, file in enumerate(projects):
        now = file.read_bytes()
        if number == 17:
            assert now == before[file]
            continue
        data = yaml.safe_load(now)
        was = yaml.safe_load(before[file])
        kept = {"name": "maigan", "gpu_slots": 2, "cpu_slots": 4}
        totals = {"total_gpu_slots": 2, "total_cpu_slots": 4, "total_slots": 6}
        assert data == {**was, "resources": {"accounts": [kept], **totals}}
        check_only_that_changed(before[file], now)
        assert file.stat().st_mode & 0o777 == 0o640
        backup = file.with_name("config.yaml.bak")
        assert backup.read_bytes() == before[file]
        assert backup.stat().st_mode & 0o777 == 0o640

    again = run(tmp_path, "--write", str(tmp_path / "KINTSUGI_Projects"))
    assert again.stdout == (
        "0 of 35 updated, 0 references left (clive, brusko); 34 without a blocked account, "
        "1 without an accounts list\n"
    )
    assert len(list(tmp_path.glob("**/*.bak*"))) == 34


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs patch")
def test_the_diff_can_be_applied(tmp_path: Path, projects: list[Path]) -> None:
    del projects[1:]
    text = "resources:\n  accounts:\n    - {name: clive}\n    - {name: maigan}\n  note: a b"
    projects[0].write_text(text)
    dry = run(tmp_path, str(projects[0]))
    diff = dry.stdout[: dry.stdout.index("1 of 1")]
    done = subprocess.run(
        ["patch", "-p1", "-d", "/", "--dry-run"], input=diff, text=True, capture_output=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, (diff, done.stdout)


def strip_text(text: str, *accounts: str, path: str = "resources.accounts") -> str:
    return strip.strip(text, accounts or ("clive", "brusko"), path).after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # Flow style, in one line: first, middle, last, several.
        ("resources: {accounts: [{name: clive}, {name: maigan}]}", "resources: {accounts: [{name: maigan}]}"),
        ("resources: {accounts: [{name: maigan}, {name: clive}]}", "resources: {accounts: [{name: maigan}]}"),
        ("resources: {accounts: [a, clive, b, brusko]}\n", "resources: {accounts: [a, b]}\n"),
        ("resources: {accounts: [clive, a, brusko, b]}\n", "resources: {accounts: [a, b]}\n"),
        ("resources: {accounts: [clive, brusko, b]}\n", "resources: {accounts: [b]}\n"),
        ("resources: {accounts: [b, clive, brusko]}\n", "resources: {accounts: [b]}\n"),
        # Flow style over lines: whole lines go, others' comments stay.
        (
            "resources:\n  accounts: [\n    {name: clive},  # c\n    {name: m},  # m\n    {name: brusko}\n  ]\n",
            "resources:\n  accounts: [\n    {name: m},  # m\n  ]\n",
        ),
        # Bare names, CRLF, no line end at the end; accounts in any case.
        ("resources:\r\n  accounts:\r\n  - CLIVE\r\n  - m", "resources:\r\n  accounts:\r\n  - m"),
        # The last entry: comments behind it stay, and so does what follows.
        (
            "resources:\n  accounts:\n  - m\n  - clive # x\n  # y\n\n  # z\n  gpus: 1\n",
            "resources:\n  accounts:\n  - m\n  # y\n\n  # z\n  gpus: 1\n",
        ),
        # Accounts as a mapping.
        (
            "resources:\n  accounts:\n    clive: {gpu_slots: 2}\n    m:\n      gpu_slots: 3\n  total_slots: 5\n",
            "resources:\n  accounts:\n    m:\n      gpu_slots: 3\n  total_slots: 3\n",
        ),
        # Nested values and block scalars inside an entry.
        (
            "resources:\n  accounts:\n  - name: clive\n    note: |\n      a\n\n      b\n\n  - name: m\n    x: [1,\n      2]\n",
            "resources:\n  accounts:\n\n  - name: m\n    x: [1,\n      2]\n",
        ),
        # `account:` instead of `name:`; tags of others' are not our business.
        (
            "x: !include other.yaml\nresources:\n  accounts:\n  - account: clive\n  - account: m\n",
            "x: !include other.yaml\nresources:\n  accounts:\n  - account: m\n",
        ),
        # Quoted totals stay quoted; right ones stay as they are.
        (
            "resources:\n  accounts: [clive, {name: m, gpu_slots: 2}]\n  total_gpu_slots: '5'\n  total_slots: 2 # ok\n",
            "resources:\n  accounts: [{name: m, gpu_slots: 2}]\n  total_gpu_slots: '2'\n  total_slots: 2 # ok\n",
        ),
        # Anchors elsewhere are no obstacle, nor is a byte order mark.
        ("\ufeffa: &a 1\nb: *a\nresources:\n  accounts:\n  - clive\n  - m\n",
         "\ufeffa: &a 1\nb: *a\nresources:\n  accounts:\n  - m\n"),
        # A list at the left margin of its key, dashes on lines of their own.
        ("resources:\n  accounts:\n  -\n    name: clive\n  -\n    name: m\n", "resources:\n  accounts:\n  -\n    name: m\n"),
    ],
)  # fmt: skip
def test_texts(before: str, after: str) -> None:
    assert strip_text(before) == after
    assert strip_text(after) == after


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("", NoAccounts, "empty"),
        ("# only comments\n", NoAccounts, "empty"),
        ("a: 1\n", NoAccounts, "no accounts at resources.accounts"),
        ("- a\n", NoAccounts, "no accounts at"),
        ("resources:\n  accounts:\n", NoAccounts, "is no list"),
        ("resources:\n  accounts: []\n", NoAccounts, "is empty"),
        ("resources:\n  accounts: clive\n", NoAccounts, "is no list"),
        ("resources:\n  accounts: [clive]\n", Refused, "left without an account"),
        ("resources:\n  accounts: [clive, Brusko]\n", Refused, "only clive, Brusko"),
        ("resources:\n  accounts: [clive\n", Refused, "line"),
        ("resources:\n  accounts: [clive, m]\n---\na: 1\n", Refused, "several documents"),
        ("resources: {accounts: [clive, m], accounts: [m]}\n", Refused, "twice"),
        ("resources:\n  accounts: [clive, {gpus: 1}]\n", Refused, "without a name"),
        ("resources:\n  accounts: [&a clive, m]\n  x: *a\n", Refused, "edit it by hand"),
        ("c: &c {name: clive}\nresources:\n  accounts:\n  - *c\n  - m\n", Refused, "alias"),
        (
            "resources:\n  accounts: [clive, {name: m, gpu_slots: two}]\n  total_slots: 3\n",
            Refused,
            "gpu_slots of m is no number",
        ),
        ("resources:\n  accounts: [clive, m]\n  total_slots: [1]\n", Refused, "total_slots is no"),
        ("a: \x07\n", Refused, "no YAML"),
    ],
)
def test_refusals(text: str, kind: type[Refused], words: str) -> None:
    with pytest.raises(kind, match=words):
        strip_text(text)


def test_other_paths() -> None:
    text = "slurm:\n  pools:\n    lab: [clive, m]\n"
    assert strip_text(text, path="slurm.pools.lab") == "slurm:\n  pools:\n    lab: [m]\n"


def test_references_that_are_left() -> None:
    text = "resources:\n  accounts: [clive, m]\ndefault: Clive  # clive\nby:\n  clive: 1\n"
    assert strip.strip(text, ["clive"], "resources.accounts").references == (
        (3, "Clive"),
        (5, "clive"),
    )


def test_a_reference_is_told_and_fails(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("resources:\n  accounts: [clive, m]\ndefault: clive\n")
    done = run(tmp_path, "--write", "c.yaml")
    assert done.returncode == 1
    assert done.stdout.splitlines()[:2] == [
        "c.yaml:3: clive is still named",
        "1 of 1 updated, 1 references left (clive, brusko)",
    ]


def test_odd_files_are_named_and_the_others_done(tmp_path: Path) -> None:
    good = "resources:\n  accounts: [clive, m]\n"
    (tmp_path / "good.yaml").write_text(good)
    (tmp_path / "bad.yaml").write_text("resources: [\n")
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9\n")
    (tmp_path / "last.yaml").write_text("resources:\n  accounts: [clive]\n")
    os.mkfifo(tmp_path / "fifo.yaml")
    names = [
        "good.yaml",
        "bad.yaml",
        "latin.yaml",
        "last.yaml",
        "fifo.yaml",
        "none.yaml",
        "no*.yml",
    ]
    done = run(tmp_path, "--write", *names)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    for name, words in {
        "bad.yaml": "no YAML",
        "latin.yaml": "not UTF-8",
        "last.yaml": "left without an account",
        "fifo.yaml": "no regular file",
        "none.yaml": "no such file",
        "no*.yml": "no config there",
    }.items():
        assert any(name in line and words in line for line in done.stderr.splitlines()), name
    assert (tmp_path / "good.yaml").read_text() == "resources:\n  accounts: [m]\n"
    assert "1 of 6 updated, 0 references left in the others (" in done.stdout
    assert "5 refused" in done.stdout


def test_a_link_stays_a_link_and_backups_are_kept(tmp_path: Path) -> None:
    real = tmp_path / "real.yaml"
    real.write_text("resources:\n  accounts: [clive, m]\n")
    (tmp_path / "real.yaml.bak").write_text("older")
    link = tmp_path / "link.yaml"
    link.symlink_to(real)
    assert run(tmp_path, "--write", "link.yaml").returncode == 0
    assert link.is_symlink()
    assert real.read_text() == "resources:\n  accounts: [m]\n"
    assert (tmp_path / "real.yaml.bak").read_text() == "older"
    assert (tmp_path / "real.yaml.bak2").read_text() == "resources:\n  accounts: [clive, m]\n"


def test_what_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("new")
    with pytest.raises(Refused, match="changed meanwhile"):
        strip.write(file, "old", "other")
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "d" / "c.yaml"
    file.parent.mkdir()
    file.write_text("old")
    file.parent.chmod(0o555)
    with pytest.raises(Refused, match="cannot be written"):
        strip.write(file, "old", "new")
    assert file.read_text() == "old"


def test_a_policy_that_blocks_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "x.yaml", policy="version: 1\naccounts: [m]\n")
    assert done.returncode == 1
    assert "blocks no account" in done.stderr
    assert "--account" in done.stderr


# -- a law: any YAML that PyYAML writes ----------------------------------------------------------

NAMES = st.sampled_from(["clive", "maigan", "brusko", "m-1", "Clive", "yes", "1"])
ENTRY = st.fixed_dictionaries(
    {"name": NAMES},
    optional={
        "gpu_slots": st.integers(0, 9),
        "cpu_slots": st.integers(0, 9),
        "note": st.text("ab #:-'\"\n[]{}é", max_size=12),
        "tags": st.lists(st.text("ab#: ", max_size=4), max_size=3),
    },
)


@settings(max_examples=300, deadline=None)
@given(
    entries=st.lists(ENTRY, min_size=1, max_size=5),
    extra=st.dictionaries(st.text("abc", min_size=1, max_size=3), st.text("ab #\n'", max_size=8)),
    total=st.none() | st.integers(0, 99),
    flow=st.sampled_from([True, False, None]),
    width=st.sampled_from([20, 80, 1000]),
    indent=st.sampled_from([2, 4]),
)
def test_any_config(
    entries: list[dict[str, Any]],
    extra: dict[str, str],
    total: int | None,
    flow: bool | None,
    width: int,
    indent: int,
) -> None:
    data: dict[str, Any] = {**extra, "resources": {"accounts": entries, "z": extra}}
    if total is not None:
        data["resources"]["total_slots"] = total
    text = yaml.safe_dump(
        data,
        default_flow_style=flow,
        sort_keys=False,
        width=width,
        indent=indent,
        allow_unicode=True,
    )
    # PyYAML folds some quoted texts so that it reads another one (":\" \n" in 20 columns).
    data = yaml.safe_load(text)
    entries = data["resources"]["accounts"]
    kept = [entry for entry in entries if entry["name"].lower() not in ("clive", "brusko")]
    try:
        after = strip_text(text)
    except Refused:
        # Never because of how it is written: only when nobody would be left.
        assert not kept
        return
    if len(kept) == len(entries):
        assert after == text
        return
    data["resources"]["accounts"] = kept
    if total is not None:
        slots = [e.get("gpu_slots", 0) + e.get("cpu_slots", 0) for e in kept]
        data["resources"]["total_slots"] = sum(slots)
    assert yaml.safe_load(after) == data
