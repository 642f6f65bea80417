"""What right policies mean."""

from __future__ import annotations

import marshal
from typing import Any, List

import pytest

from sbatch_router.core.match import matches
from sbatch_router.core.policy import Account, Blocked, Policy, Rule, WhenFull
from sbatch_router.core.policy import Test as Condition
from sbatch_router.policyfile import examine, load, loads, merge

HEAD = "version: 1\naccounts: [maigan, clive]\n"

FULL = """\
version: 1
accounts:
  - name: maigan
    qos: [maigan, maigan-b]
  - name: Clive
    only: {gpus: 0}
blocked:
  - account: brusko
    reason: throttled to 1 GPU and full since March; PI asked us to stay off   # required
    since: 2026-03-02
    review: 2026-12-31
rules:
  - name: gpu jobs
    when: {gpus: ">0"}
    order: [gpu, mem]
  - name: short qc on burst
    when: {gpus: 0, time: "<=4h", rule: "qc_*"}
    candidates: [maigan/maigan-b]
    order: [mem, cpu]
    when_full: {wait: 10m}
  - order: mem
    own_backlog: refuse
when_full: refuse
own_backlog: queue
explicit_account: {script: override}
when_slurm_unreachable: submit
source: auto
cache: 5s
"""


def test_the_whole_format() -> None:
    gpus = Condition("==", (0,), "0")
    assert loads(FULL, "p.yaml") == Policy(
        accounts=(
            Account("maigan", ("maigan", "maigan-b")),
            Account("clive", None, {"gpus": gpus}),
        ),
        blocked=(
            Blocked(
                "brusko",
                "throttled to 1 GPU and full since March; PI asked us to stay off",
                "2026-03-02",
                "2026-12-31",
                "p.yaml",
            ),
        ),
        rules=(
            Rule("gpu jobs", {"gpus": Condition(">", (0,), ">0")}, ("gpu", "mem")),
            Rule(
                "short qc on burst",
                {
                    "gpus": gpus,
                    "time": Condition("<=", (240,), "<=4h"),
                    "rule": Condition("glob", ("qc_*",), "qc_*"),
                },
                ("mem", "cpu"),
                (("maigan", "maigan-b"),),
                WhenFull("wait", 600),
            ),
            Rule("rule 3", order=("mem",), own_backlog="refuse"),
        ),
        explicit_account={"cli": "keep", "env": "prefer", "script": "override"},
        files=("p.yaml",),
    )


def test_defaults() -> None:
    assert loads(HEAD, "p") == Policy((Account("maigan"), Account("clive")), files=("p",))


def test_names_stay_as_written() -> None:
    """YAML 1.1 would make false, 83, 1000.0, 90, a date, infinity and 4660 of these."""
    names = ["no", "0123", "1e3", "1_000", "2026-03-02", ".inf", "0x1234", "on", "true", "12"]
    text = "version: 1\naccounts:\n" + "".join(f"  - {name}\n" for name in names)
    assert [account.name for account in loads(text).accounts] == names


def test_time_like_name_needs_no_quotes_in_patterns() -> None:
    policy = loads(HEAD + "rules: [{when: {job_name: 1:30, wildcards.sample: 007, rule: no}}]\n")
    when = policy.rules[0].when
    assert [test.values for test in when.values()] == [("1:30",), ("007",), ("no",)]


@pytest.mark.parametrize("text", ["\ufeff" + HEAD, HEAD.replace("\n", "\r\n"), "---\n" + HEAD])
def test_harmless_forms(text: str) -> None:
    assert len(loads(text).accounts) == 2
    assert len(loads(text.encode()).accounts) == 2


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("0s", 0), ("5s", 5), ("2m", 120), ("1h", 3600), ("1m30s", 90), ("0.5m", 30)],
)
def test_durations(text: str, seconds: int) -> None:
    assert loads(HEAD + f"cache: {text}\n").cache_seconds == seconds


@pytest.mark.parametrize(
    "text", ["wait 10m", "{wait: 10m}", '"wait  600s"', "\n  wait: 10m", "{wait: '10m'}"]
)
def test_wait(text: str) -> None:
    assert loads(HEAD + f"when_full: {text}\n").when_full == WhenFull("wait", 600)


@pytest.mark.parametrize(
    ("matcher", "text", "holds", "fails"),
    [
        ("gpus", "4", [4], [3, 5]),
        ("gpus", "'==4'", [4], [3]),
        ("gpus", "'> 0'", [1], [0]),
        ("gpus", "'!=2'", [1, 3], [2]),
        ("gpus", "2..8", [2, 5, 8], [1, 9]),
        ("gpus", "'2 .. 8'", [2, 8], [1, 9]),
        ("gpus", "[0, 4..8, '>16']", [0, 4, 8, 17], [1, 9, 16]),
        ("gpus", "['<8', '!=3']", [2, 4], [3, 8]),
        ("gpus", "['!=3', '!=4']", [2, 5], [3, 4]),
        ("gpus", "[1, 2]", [1, 2], [0, 3]),
        ("mem", "250G", [256000], [250]),
        ("mem", "312.5G", [320000], [312]),
        ("mem", "'<=1T'", [1048576], [1048577]),
        ("mem", "4000", [4000], [4]),
        ("mem", "'>=64GB'", [65536], [65535]),
        ("mem", "'<2048K'", [1], [2]),
        ("time", "'<=4h'", [240, 1], [241, None]),
        ("time", "90", [90], [1]),
        ("time", "1h30m", [90], [91]),
        ("time", "1-00:00:00", [1440], [24]),
        ("time", "1-12", [2160], [1]),
        ("time", "00:01:30", [1.5], [90]),
        ("time", "'>7d'", [10081, None], [10080]),
        ("time", "unlimited", [None], [0, 10**9]),
        ("time", "'!=UNLIMITED'", [5], [None]),
        ("partition", "GPU*", [("gpu1",), ("cpu", "Gpu")], [("cpu",), ()]),
        ("partition", "[gpu*, '!=gpu-test']", [("gpu1",)], [("gpu-test",), ("cpu",)]),
        ("gpu_type", "a100", [("A100",)], [("a1000",), ()]),
        ("gpu_type", "'!=a100'", [("h100",), ()], [("a100",), ("h100", "a100")]),
        ("rule", "['qc_*', trim]", [("qc_a",), ("x", "trim")], [("QC_a",), ("x",)]),
        ("job_name", "'*_[0-9]'", ["a_1"], ["a_b", "a_12"]),
        ("wildcards.sample", "A?", ["A1"], ["A", "B1"]),
    ],
)
def test_conditions(matcher: str, text: str, holds: List[Any], fails: List[Any]) -> None:
    policy = loads(HEAD + f"rules: [{{when: {{{matcher}: {text}}}}}]\n")
    when = policy.rules[0].when
    assert [fact for fact in holds if not matches(when, {matcher: fact})] == []
    assert [fact for fact in fails if matches(when, {matcher: fact})] == []
    assert not matches(when, {})


def test_only_values_that_the_cache_can_hold() -> None:
    policy = loads(FULL, "p.yaml")
    more = loads(HEAD + "rules: [{when: {gpus: [1, '>8', '!=9'], time: unlimited}}]\n")

    def plain(value: object) -> object:
        if isinstance(value, tuple):
            return tuple(plain(item) for item in value)
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return value

    for one in (policy, more):
        marshal.dumps(plain(one))


def test_merge_binds_the_sites_blocks() -> None:
    user = loads(HEAD + "blocked: [{account: brusko, reason: mine}, {account: x, reason: y}]", "u")
    site = loads("version: 1\nblocked: [{account: clive, reason: s}, {account: brusko, reason: t}]",
                 "/etc/sbatch-router/policy.yaml")  # fmt: skip
    merged = merge(user, site)
    assert [(b.account, b.reason, b.file) for b in merged.blocked] == [
        ("clive", "s", "/etc/sbatch-router/policy.yaml"),
        ("brusko", "t", "/etc/sbatch-router/policy.yaml"),
        ("x", "y", "u"),
    ]
    assert merged.accounts == user.accounts
    assert merged.files == ("u", "/etc/sbatch-router/policy.yaml")


def test_load(tmp_path: Any) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(FULL.encode())
    assert load(path) == loads(FULL, str(path)) == load(str(path))


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        (FULL, []),
        (
            HEAD + "blocked: [{account: clive, reason: full}]\n",
            ["2: warning: accounts[2]: clive is listed here and blocked: it is never chosen"],
        ),
        (
            "version: 1\naccounts: [a]\nblocked: [{account: a, reason: full}]\n",
            [
                "2: warning: accounts[1]: a is listed here and blocked: it is never chosen",
                "2: warning: accounts: every account is blocked: no job can be routed",
            ],
        ),
        (
            HEAD + "blocked:\n- account: x\n  reason: y\n  review: 2026-06-01\n",
            ["6: warning: blocked[1].review: x was to be reviewed on 2026-06-01: y"],
        ),
        (
            HEAD + "blocked:\n- {account: x, reason: y, since: 2027-02-01, review: 2027-01-01}\n",
            ["4: warning: blocked[1].review: is before since"],
        ),
        (
            HEAD + "rules:\n- order: mem\n- when: {gpus: 1}\n",
            ["5: warning: rules[2]: is never reached: `rule 1` before it matches every such job"],
        ),
        (
            HEAD + "rules:\n- {name: a, when: {gpus: 1}}\n- when: {gpus: '==1', mem: '>1G'}\n",
            ["5: warning: rules[2]: is never reached: `a` before it matches every such job"],
        ),
        (
            HEAD + "rules:\n- when: {gpus: '<0'}\n- when: {cpus: '>=1', nodes: 0}\n",
            [
                "4: warning: rules[1].when.gpus: <0 never holds: gpus is 0 or more",
                "5: warning: rules[2].when.cpus: >=1 always holds: cpus is 1 or more",
                "5: warning: rules[2].when.nodes: 0 never holds: nodes is 1 or more",
            ],
        ),
        (
            HEAD + "rules: [{when: {gpus: [5, '!=5'], time: ['<1h', '>=1h']}}]\n",
            [
                "3: warning: rules[1].when.gpus: [5, !=5] never holds: gpus is 0 or more",
                "3: warning: rules[1].when.time: [<1h, >=1h] always holds: time is 0 or more",
            ],
        ),
        (
            HEAD + "rules: [{when: {gpus: 0, gpu_type: a100}}]\n",
            [
                (
                    "3: warning: rules[1].when.gpu_type: never holds: gpus is 0, and a job without "
                    "GPUs names no type"
                )
            ],
        ),
        (HEAD + "rules: [{when: {gpus: '>0', gpu_type: a100}}]\n", []),
        (
            HEAD + "rules: [{order: [listed, mem]}]\n",
            [
                (
                    "3: warning: rules[1].order: keys after `listed` never decide: "
                    "no two accounts are listed equal"
                )
            ],
        ),
        (
            HEAD + "rules: [{candidates: maigan/b}]\n",
            [],
        ),
        (
            HEAD + "cache: 30m\n",
            ["3: warning: cache: usage up to 1800 s old decides; 5s is usual"],
        ),
    ],
)
def test_warnings(text: str, warnings: List[str]) -> None:
    checked = examine(text, "p", "2026-11-30")
    assert checked.errors == ()
    assert [str(warning) for warning in checked.warnings] == ["p:" + w for w in warnings]


def test_blocklist_alone() -> None:
    checked = examine("version: 1\nblocked: [{account: brusko, reason: full}]\n")
    assert checked.policy is not None
    assert (checked.policy.accounts, checked.warnings) == ((), ())
