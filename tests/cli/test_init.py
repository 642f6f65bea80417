"""`init`: a policy from live associations, which then passes every check."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from sbatch_router import policyfile
from sbatch_router.cli import init
from sbatch_router.core.policy import Blocked
from sbatch_router.core.snapshot import Assoc, Config, Qos, Scope, Site, Snapshot
from sbatch_router.core.tres import UNKNOWN, Limit

from .conftest import Cli

EMPTY = Scope({}, {})


def qos(name: str, wall: Any = None, **limits: int) -> Qos:
    tres = {"GrpTRES": {t.replace("_", "/"): Limit(n, 0) for t, n in limits.items()}}
    return Qos(name, Scope(tres, {"MaxWallPJ": Limit(wall)}), {}, {})


def site(own: dict[str, tuple[str, ...]], default: str, *records: Qos) -> Site:
    assocs = {
        (account, "zoe", ""): Assoc(account, "zoe", "", account, EMPTY, names, names[0])
        for account, names in own.items()
    }
    return Site(
        0, "zoe", Config((24, 11), frozenset(), cluster="c1"), UNKNOWN, assocs,
        {record.name: record for record in records}, default,
    )  # fmt: skip


LIVE = Snapshot(0, "scontrol", "zoe", UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)


def text_for(found: Site, blocks: tuple[Blocked, ...] = ()) -> str:
    return init.policy_text(init._accounts(found), found, LIVE, blocks)


@pytest.mark.parametrize(
    ("name", "records", "burst"),
    [
        ("lab-b", (), True),
        ("lab_b", (), True),
        ("lab-burst", (), True),
        ("other-b", (), False),
        ("lab", (), False),
        ("big", (qos("lab", cpu=10, mem=100), qos("big", cpu=40, mem=400)), True),
        ("big", (qos("lab", cpu=10, mem=100), qos("big", cpu=39, mem=400)), False),
        ("big", (qos("lab", cpu=10), qos("big", cpu=90)), True),
        ("normal", (qos("lab", cpu=10), qos("normal")), False),
        ("debug", (qos("lab", cpu=10), qos("debug", cpu=1)), False),
    ],
)
def test_what_counts_as_burst(name: str, records: tuple[Qos, ...], burst: bool) -> None:
    assert init.is_burst(name, "lab", "lab", {r.name: r for r in records}) is burst


def test_the_text() -> None:
    found = site(
        {"bio": ("bio",), "chem": ("chem", "chem-b", "debug")},
        "chem",
        qos("bio", cpu=8, mem=1024),
        qos("chem", cpu=10, mem=320000, gres_gpu=2),
        qos("chem-b", 4 * 1440, cpu=90, mem=2880000),
    )
    text = text_for(found)
    head, _, rest = text.partition("version: 1\n")
    assert "# Where the jobs of zoe on cluster c1 may go.\n" in head
    accounts, _, rules = rest.partition("# The first rule that matches decides.")
    assert accounts.startswith(
        "\n"
        "# In order of preference when all else is equal.\n"
        "accounts:\n"
        "  # your default account\n"
        "  - name: chem\n"
        "    qos: [chem, chem-b]\n"
        "    # chem: cpu 10, mem 312.5G, gres/gpu 2\n"
        "    # chem-b (burst): cpu 90, mem 2812.5G; a job 4d\n"
        "    # allowed as well: debug\n"
        "  - name: bio\n"
        "    qos: [bio]\n"
        "    # bio: cpu 8, mem 1G\n"
    )
    assert "# account's second: burst is taken last, " in rules
    policy = policyfile.loads(text)
    assert [(a.name, a.qos) for a in policy.accounts] == [
        ("chem", ("chem", "chem-b")),
        ("bio", ("bio",)),
    ]
    assert [(rule.name, rule.order, rule.candidates) for rule in policy.rules] == [
        ("gpu jobs", ("primary", "gpu", "mem"), None),
        ("everything else", ("primary", "mem", "cpu"), None),
    ]
    assert policyfile.examine(text, "p").warnings == ()


def test_without_burst_nothing_is_said_of_it() -> None:
    text = text_for(site({"bio": ("bio", "debug")}, "bio", qos("bio", cpu=8)))
    assert [rule.order for rule in policyfile.loads(text).rules] == [("gpu", "mem"), ("mem", "cpu")]
    assert "primary" not in text
    assert "burst" not in text


def test_a_burst_qos_alone_is_not_listed() -> None:
    """Where Slurm has no default QOS the account would have burst as its first and only one."""
    found = site({"lab": ("lab-b",)}, "lab")
    own = found.assocs["lab", "zoe", ""]._replace(default_qos=None)
    text = text_for(found._replace(assocs={("lab", "zoe", ""): own}))
    assert policyfile.loads(text).accounts[0].qos is None
    assert "# allowed as well: lab-b\n" in text


@pytest.mark.parametrize("name", ["no", "0123", "1e3", "a:b", "é", "a.b+c@d-e", "null"])
def test_odd_names_come_back(name: str) -> None:
    found = site({name: (name,)}, name)
    policy = policyfile.loads(text_for(found))
    assert (policy.accounts[0].name, policy.accounts[0].qos) == (name, (name,))
    assert isinstance(yaml.safe_load(text_for(found)), dict)


@pytest.mark.parametrize("name", ["#x", "x y", "-", 'q"q', "a,b"])
def test_names_that_no_policy_takes_are_left_out(name: str) -> None:
    found = site({name: (name,), "lab": ("lab", name)}, name)
    text = text_for(found)
    assert f"  # {name} is left out: a policy cannot name it\n" in text
    assert [(a.name, a.qos) for a in policyfile.loads(text).accounts] == [("lab", ("lab",))]


def test_what_the_site_blocks_is_left_out() -> None:
    found = site({"bio": ("bio",), "chem": ("chem",)}, "chem")
    text = text_for(found, (Blocked("chem", "full\nsince May", file="/etc/p.yaml"),))
    assert "  # chem is blocked by /etc/p.yaml: full since May\n" in text
    assert [a.name for a in policyfile.loads(text).accounts] == ["bio"]


# -- on a cluster ----------------------------------------------------------------------------


@pytest.mark.cluster
def test_on_a_cluster(cli: Cli) -> None:
    path = cli.cluster.home("alice") / ".config/sbatch-router/policy.yaml"
    made = cli.run("init")
    assert (made.rc, made.out) == (0, "")
    said = re.fullmatch(
        rf"wrote {re.escape(str(path))}: (\d) accounts, your default first\n"
        r"next: sbatch-router check --live; sbatch-router install-shim ~/bin\n",
        made.err,
    )
    assert said, made.err
    text = path.read_text()
    assert "qos: [maigan, maigan-b]" in text
    assert policyfile.loads(text).accounts[0].name == "clive"
    assert "# clive: cpu 80, mem 312.5G, gres/gpu 1" in text
    checked = cli.run("check")
    assert (checked.rc, checked.err) == (0, "")
    assert checked.out == f"{path}: ok ({said[1]} accounts, 2 rules)\n"
    live = cli.run("check", "--live")
    assert (live.rc, live.out, live.err) == (0, checked.out, "")


@pytest.mark.cluster
def test_burst_is_taken_last(cli: Cli) -> None:
    """The policy that `init` writes, job by job, as slurmctld sees them."""
    assert cli.run("init").rc == 0
    path = cli.cluster.home("alice") / ".config/sbatch-router/policy.yaml"
    other = "blocked: [{account: other, reason: another test's}]\n"
    path.write_text(path.read_text() + other + "cache: 0\n")
    went = []
    for _ in range(5):
        done = cli.sbatch("--mem=300G", "-c2", "--wrap", "sleep 300")
        assert done.rc == 0, done
        job = done.out.split()[-1]
        assert cli.cluster.wait_reason(job)[0] == "RUNNING"
        shown = cli.cluster.run("scontrol", "-o", "show", "job", job).stdout
        went += re.findall(r" QOS=(\S+)", shown)
    # There is room for four in 625G and twice 312.5G; burst alone has 5625G.
    assert sorted(went[:4]) == ["brusko", "clive", "maigan", "maigan"]
    assert went[4] == "maigan-b"


@pytest.mark.cluster
def test_it_never_overwrites(cli: Cli) -> None:
    path = cli.policy("mine\n")
    found = cli.run("init")
    assert (found.rc, found.out) == (1, "")
    assert found.err == (
        f"Error: {path} is there already, and is left alone; remove it, or name another file "
        "with --output\n"
    )
    assert path.read_text() == "mine\n"
    for name in ("dangling", "directory"):
        target = cli.cluster.home("alice") / name
        if name == "dangling":
            target.symlink_to("/nowhere")
        else:
            target.mkdir()
        found = cli.run("init", "-o", str(target))
        assert (found.rc, found.out, "is there already" in found.err) == (1, "", True)


@pytest.mark.cluster
def test_other_places(cli: Cli) -> None:
    named = cli.cluster.home("alice") / "a/b/p.yaml"
    found = cli.run("init", env={"SBATCH_ROUTER_POLICY": str(named)})
    assert (found.rc, named.exists()) == (0, True)
    shown = cli.run("init", "-o", "-")
    assert (shown.rc, shown.err) == (0, "")
    assert shown.out == named.read_text()
    denied = cli.run("init", "-o", "/proc/no/p.yaml")
    assert (denied.rc, denied.out) == (1, "")
    assert denied.err.startswith("Error: /proc/no: ")


@pytest.mark.cluster
def test_without_slurm(cli: Cli) -> None:
    found = cli.run("init", env={"PATH": "/nowhere"})
    assert (found.rc, found.out) == (1, "")
    assert found.err.startswith("Error: your Slurm accounts are not known: scontrol was not found")
    assert found.err.endswith("see `sbatch-router doctor`\n")
    assert not (cli.cluster.home("alice") / ".config/sbatch-router/policy.yaml").exists()


@pytest.mark.cluster
def test_a_user_without_an_account(cli: Cli) -> None:
    cli.cluster.apply({"users": {"mallory": {}}})
    found = cli.run("init", user="mallory")
    assert (found.rc, found.out) == (1, "")
    assert "no association of user mallory" in found.err
