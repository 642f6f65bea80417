"""The runner of cases, and the cases of the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List

import pytest

from sbatch_router.cases import beside, examine_cases, run_cases

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(p for p in (ROOT / "policies").glob("*.yaml") if ".cases." not in p.name)

POLICY = "version: 1\naccounts: [maigan, clive]\nrules: [{name: all, order: mem}]\n"
POOLS = 'pools:\n  maigan: {limits: "mem=100G"}\n  clive: {limits: "mem=50G"}\ncases:\n'


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples(path: Path) -> None:
    outcome = examine_cases(beside(str(path)))
    assert [str(failure) for failure in outcome.failures] == []
    assert outcome.total >= 3


def run(tmp_path: Path, text: str, policy: str = POLICY) -> List[str]:
    (tmp_path / "p.yaml").write_text(policy)
    path = tmp_path / "p.cases.yaml"
    path.write_text(text)
    return [str(failure)[len(str(tmp_path)) + 1 :] for failure in run_cases(str(path))]


def test_failures_name_case_and_line(tmp_path: Path) -> None:
    text = POOLS + (
        "- {name: good, sbatch: --mem=1G x.sh, expect: {action: route, account: maigan}}\n"
        "- name: bad\n"
        "  sbatch: [--mem=60G, x.sh]\n"
        "  expect:\n"
        "    account: clive\n"
        "    rule: other\n"
        "    exit: 75\n"
        "    why: because\n"
        "    verdicts: {clive: fits, brusko: blocked}\n"
        "    reasons: {clive: ''}\n"
    )
    assert run(tmp_path, text) == [
        "p.cases.yaml:6: bad: account: is `maigan`; expected `clive` (fits now)",
        "p.cases.yaml:6: bad: rule: is `all`; expected `other` (fits now)",
        "p.cases.yaml:6: bad: exit: is `0`; expected `75` (fits now)",
        "p.cases.yaml:6: bad: why: is `fits now`; expected it to contain `because`",
        (
            "p.cases.yaml:6: bad: verdicts.clive: is `never`; expected `fits` "
            "(qos clive: GrpTRES mem is 50G, asked 60G)"
        ),
        "p.cases.yaml:6: bad: verdicts.brusko: is no candidate",
        (
            "p.cases.yaml:6: bad: reasons.clive: is `QOSGrpMemLimit`; expected `` "
            "(qos clive: GrpTRES mem is 50G, asked 60G)"
        ),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1: file: is empty; a policy starts with `version: 1`"),
        ("cases: 4\n", "1: cases: is missing or no list; expected a list of cases"),
        ("- 4\n", "1: cases: is a list; expected a mapping"),
        (POOLS + "- 4\n", "5: cases[1]: is `4`; expected a mapping"),
        (POOLS + "- {sbatch: x.sh}\n", "5: cases[1].expect: is missing"),
        (POOLS + "- {expect: {}}\n", "5: cases[1].sbatch: is missing"),
        (POOLS + '- {sbatch: "\'", expect: {}}\n', "5: cases[1].sbatch: is `'`: No closing"),
        (
            POOLS + "- {sbatch: x, expect: {acount: a}}\n",
            "5: cases[1].expect.acount: unknown key; did you mean `account`?",
        ),
        (
            POOLS + "- {sbatch: x, expect: {}, pools: {a: {limit: cpu=4}}}\n",
            "5: cases[1].pools.a.limit: unknown key; did you mean `limits`?",
        ),
        (
            POOLS + "- {sbatch: x, expect: {}, pools: {a: {limits: cpu}}}\n",
            "5: pools.a.limits: not a TRES amount: 'cpu' in 'cpu'",
        ),
        (
            POOLS + "- {sbatch: x, expect: {}, silent: maybe}\n",
            "5: cases[1].silent: is `maybe`; expected yes or no",
        ),
        (
            POOLS + "- {sbatch: x, expect: {}, user_policy: {version: 2}}\n",
            "5: version: is `2`; expected 1",
        ),
    ],
)
def test_malformed(tmp_path: Path, text: str, expected: str) -> None:
    assert run(tmp_path, text)[0].startswith("p.cases.yaml:" + expected)


def test_a_policy_with_errors_fails_its_cases(tmp_path: Path) -> None:
    assert run(tmp_path, POOLS, "version: 1\n") == [
        "p.yaml:1: accounts: is missing; expected a list of accounts"
    ]


def test_missing_files(tmp_path: Any) -> None:
    (failure,) = run_cases(str(tmp_path / "none.cases.yaml"))
    assert "none.yaml:1: file: cannot be read" in str(failure)


def test_what_pools_can_say(tmp_path: Path) -> None:
    policy = "version: 1\naccounts: [{name: a, qos: [a, b]}, c, d, e]\n"
    text = """\
user: bob
partitions: [gpu, main]
pools:
  a: {max_per_job: "mem=2G"}
  a/b: {max_per_user: "cpu=4", used_by_me: "cpu=4,gres/gpu:a100=1"}
  c: {unknown: yes}
  d: {limits: "cpu=1", flags: DenyOnLimit}
cases:
- sbatch: -c 2 --mem=4G --wrap=true
  expect:
    action: pass
    verdicts: {a/a: never, a/b: waits_mine, c: unknown, d: never, e: not_allowed}
    reasons: {a/b: QOSMaxCpuPerUserLimit, d: ""}
  pools: {a/b: {pending_mine: cpu=1}}
"""
    found = run(tmp_path, text, policy)
    assert [line.split(": ", 1)[1] for line in found] == [
        # own_backlog queues behind my own jobs in a/b before what is unknown counts.
        "cases[1]: action: is `queue`; expected `pass` (only your own jobs are in the way)"
    ]
