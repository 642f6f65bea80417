"""`sbatch-router check`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
from click.testing import CliRunner

from sbatch_router.cli.check import command
from sbatch_router.cli.check_live import live_findings
from sbatch_router.core.snapshot import Assoc, Config, Partition, Qos, Scope, Site
from sbatch_router.core.tres import UNKNOWN
from sbatch_router.policyfile import examine
from sbatch_router.slurm.collect import collect_site

GOOD = "version: 1\naccounts: [maigan]\nrules: [{order: mem}]\n"
POOLS = 'pools: {maigan: {limits: "mem=100G"}}\ncases:\n'


def check(*args: str, env: Optional[Dict[str, str]] = None) -> Any:
    return CliRunner().invoke(command, args, env=env)


def write(tmp_path: Path, name: str, text: str) -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_good(tmp_path: Path) -> None:
    file = write(tmp_path, "p.yaml", GOOD)
    found = check(file)
    assert (found.exit_code, found.output) == (0, f"{file}: ok (1 account, 1 rule)\n")


def test_errors_and_warnings_of_all_files(tmp_path: Path) -> None:
    bad = write(tmp_path, "bad.yaml", "version: 1\naccounts: [maigan]\nwhen_ful: x\ncache: 5\n")
    warn = write(tmp_path, "warn.yaml", GOOD + "cache: 30m\n")
    old = write(
        tmp_path,
        "old.yaml",
        "version: 1\nblocked: [{account: a, reason: full, review: 2020-01-01}]\n",
    )
    none = str(tmp_path / "none.yaml")
    found = check(bad, warn, old, none)
    assert found.exit_code == 1
    assert found.output.splitlines() == [
        f"{bad}:3: when_ful: unknown key; did you mean `when_full`?",
        (
            f"{bad}:4: cache: is `5`; expected a duration in seconds, minutes, hours or days such "
            "as 5s, 2m, 1h, or 0"
        ),
        f"{warn}:4: warning: cache: usage up to 1800 s old decides; 5s is usual",
        f"{warn}: ok (1 account, 1 rule)",
        f"{old}:2: warning: blocked[1].review: a was to be reviewed on 2020-01-01: full",
        f"{old}: ok (0 accounts, 0 rules)",
        f"{none}:1: file: cannot be read: No such file or directory; expected a YAML file",
    ]
    assert check(warn, old).exit_code == 0


def test_cases_run_once(tmp_path: Path) -> None:
    file = write(tmp_path, "p.yaml", GOOD)
    cases = write(
        tmp_path, "p.cases.yaml", POOLS + "- {sbatch: --mem=1G x, expect: {action: route}}\n"
    )
    lines = [f"{file}: ok (1 account, 1 rule)", f"{cases}: ok (1 case)"]
    for args in ([file], [file, cases], [cases, file], [file, file]):
        found = check(*args)
        assert (found.exit_code, found.output.splitlines()) == (0, lines)
    assert check(cases).output.splitlines() == lines[1:]


def test_failing_cases_fail(tmp_path: Path) -> None:
    file = write(tmp_path, "p.yaml", GOOD)
    cases = write(
        tmp_path, "p.cases.yaml", POOLS + "- {sbatch: --mem=1G x, expect: {action: keep}}\n"
    )
    found = check(file)
    assert found.exit_code == 1
    assert f"{cases}:3: cases[1]: action: is `route`; expected `keep`" in found.output


def test_no_file_checks_what_is_used(tmp_path: Path) -> None:
    file = write(tmp_path, "p.yaml", GOOD)
    found = check(env={"SBATCH_ROUTER_POLICY": file})
    assert found.exit_code == 0
    assert f"{file}: ok" in found.output


def test_no_policy_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbatch_router.environ.policy_paths", lambda environ: ())
    found = check()
    assert found.exit_code == 1
    assert "no policy is in use" in found.output


# -- check --live -----------------------------------------------------------------------------

EMPTY = Scope({}, {})


def assoc(account: str, user: str, *qos: str) -> Assoc:
    return Assoc(account, user, "", "root", EMPTY, qos, qos[0] if qos else None)


SITE = Site(
    taken_at=0,
    user="alice",
    config=Config((24, 11, 5), frozenset(("limits",)), tres=frozenset(("cpu", "gres/gpu:a100"))),
    partitions={"main": Partition("main"), "gpu": Partition("gpu")},
    assocs={
        (account, user, ""): assoc(account, user, *qos)
        for account, user, qos in (
            ("root", "", ()),
            ("maigan", "", ("maigan",)),
            ("maigan", "alice", ("maigan", "maigan-b")),
            ("clive", "", ("clive",)),
            ("clive", "alice", ("clive",)),
            ("vision", "", ("vision",)),
        )
    },
    qos={n: Qos(n, EMPTY, {}, {}) for n in ("maigan", "maigan-b", "clive", "vision")},
)


def live(text: str, site: Site = SITE) -> List[str]:
    checked = examine("version: 1\n" + text, "p")
    assert checked.policy is not None, checked.errors
    assert checked.lines is not None
    return [str(f) for f in live_findings(checked.policy, checked.lines, site)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("accounts: [maigan, {name: clive, qos: clive}]", []),
        (
            "accounts: [maigan, clyve]",
            ["p:2: accounts[2]: account clyve does not exist; did you mean `clive`?"],
        ),
        (
            "accounts: [maigan, vision]",
            ["p:2: warning: accounts[2]: alice may not use account vision"],
        ),
        (
            "accounts: [vision]",
            [
                "p:2: accounts: none of them can be used by alice: no job can be routed",
                "p:2: warning: accounts[1]: alice may not use account vision",
            ],
        ),
        (
            "accounts: [maigan]\nblocked: [{account: maigan, reason: x}, {account: bk, reason: x}]",
            [
                "p:2: accounts: none of them can be used by alice: no job can be routed",
                "p:3: warning: blocked[2].account: account bk does not exist",
            ],
        ),
        (
            "accounts:\n- maigan\n- {name: clive, qos: [clive-c, maigan-b, clive]}",
            [
                "p:4: accounts[2].qos: QOS clive-c does not exist; did you mean `clive`?",
                (
                    "p:4: warning: accounts[2].qos: QOS maigan-b is not allowed for alice in "
                    "account clive"
                ),
            ],
        ),
        (
            (
                "accounts: [{name: maigan, only: {partition: [man, 'x*', 'GPU']}}]\n"
                "rules: [{when: {partition: '!=mian'}}]"
            ),
            [
                (
                    "p:2: accounts[1].only.partition: partition man does not exist; "
                    "did you mean `main`?"
                ),
                (
                    "p:3: rules[1].when.partition: partition mian does not exist; "
                    "did you mean `main`?"
                ),
                "p:2: warning: accounts[1].only.partition: no partition matches x*",
            ],
        ),
        (
            "accounts: [maigan]\nrules: [{when: {gpu_type: [a10, 'A*', '!=xyz']}}]",
            [
                (
                    "p:3: warning: rules[1].when.gpu_type: no GPU type that Slurm accounts for "
                    "matches a10; did you mean `a100`?"
                ),
                (
                    "p:3: warning: rules[1].when.gpu_type: no GPU type that Slurm accounts for "
                    "matches xyz"
                ),
            ],
        ),
    ],
)
def test_live(text: str, expected: List[str]) -> None:
    assert live(text) == expected


def test_live_without_answers() -> None:
    site = Site(0, "alice", UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, ("sacctmgr timed out",))
    assert live("accounts: [maigan]", site) == [
        "p:2: accounts: cannot be checked: sacctmgr timed out; see `sbatch-router doctor`",
    ]
    # What slurmdbd tells is compared all the same.
    site = SITE._replace(config=UNKNOWN, partitions=UNKNOWN, troubles=("scontrol timed out",))
    assert live("accounts: [maigan, clyve]", site) == [
        (
            "p:2: accounts: limits and partitions cannot be checked: scontrol timed out; "
            "see `sbatch-router doctor`"
        ),
        "p:2: accounts[2]: account clyve does not exist; did you mean `clive`?",
    ]


def test_live_where_no_limit_binds() -> None:
    site = SITE._replace(config=Config((24, 11, 5), frozenset(("associations",))))
    (only,) = live("accounts: [maigan]", site)
    assert "no limit binds here" in only


def test_live_option_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbatch_router.cli._pools.ask_site", lambda: SITE)
    file = write(tmp_path, "p.yaml", "version: 1\naccounts: [maigan, clyve]\n")
    found = check("--live", file)
    assert found.exit_code == 1
    assert (
        found.output
        == f"{file}:2: accounts[2]: account clyve does not exist; did you mean `clive`?\n"
    )


@pytest.mark.cluster
def test_live_on_a_real_cluster(cluster: Any) -> None:
    site = collect_site("alice", 10, 30, 0, path=cluster.env["PATH"], env=cluster.env)
    text = (
        "accounts: [maigan, {name: brusko, qos: [bruskoo, clive]}, nosuch]\n"
        "rules: [{when: {partition: [mian, main], gpu_type: a100}}]"
    )
    assert live(text, site) == [
        "p:2: accounts[2].qos: QOS bruskoo does not exist; did you mean `brusko`?",
        "p:2: accounts[3]: account nosuch does not exist",
        "p:3: rules[1].when.partition: partition mian does not exist; did you mean `main`?",
        ("p:2: warning: accounts[2].qos: QOS clive is not allowed for alice in account brusko"),
    ]
