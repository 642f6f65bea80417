"""Whatever is in the file, the loader answers with a policy or with PolicyErrors.

A quick set in the suite; ``SBATCH_ROUTER_LONG=1`` makes it 100,000.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import yaml
from malformed import MALFORMED
from test_policyfile import FULL

from sbatch_router.cases import decision, read_cases, unmet
from sbatch_router.core.match import matches
from sbatch_router.policy_yaml.findings import Report
from sbatch_router.policy_yaml.nodes import Unreadable
from sbatch_router.policyfile import examine, load

TRIES = 100_000 if os.environ.get("SBATCH_ROUTER_LONG") else 2_000
SEEDS = [FULL, *(text for _, text, _ in MALFORMED if isinstance(text, str))]
PIECES = [
    *"\n\t :-,?*&!|>'\"%@`#[]{}<=~\0\x85\u2028\ufeff\ud800é0",
    "---\n", "...\n", "<<: ", "&a ", "*a", "!!binary ", "!!python/name:os ", "null", "no", "0x1",
    ".nan", "2..1", "1e999", "9" * 400, "  ", "? ", "- - - ", "[" * 50, "{a: " * 30, "wait: ",
    "\r", "\r\n", "version: 1\n", "rules:\n", "when: ", "%YAML 1.2\n", "%TAG ! x\n", "¹", "٣",
]  # fmt: skip
FACTS = {
    "gpus": 1, "gpu_type": ("a100",), "cpus": 4, "mem": 1000, "nodes": 1, "time": None,
    "partition": "main", "array": 1, "job_name": "x", "user": "u", "rule": ("r",), "attempt": 1,
}  # fmt: skip


def mutate(text: str, rng: random.Random) -> str:
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice((0, 0, 1, 2, 5, 20, 80)))
        other = rng.choice(SEEDS)
        start = rng.randrange(len(other) + 1)
        piece = rng.choice((rng.choice(PIECES), other[start : start + rng.randint(0, 40)], ""))
        text = text[:at] + piece + text[end:]
    return text


def test_no_other_exception() -> None:
    rng = random.Random(20261130)
    good = 0
    for number in range(TRIES):
        text = mutate(FULL if number % 2 else rng.choice(SEEDS), rng)
        checked = examine(text, "p", "2026-11-30")
        assert bool(checked.errors) != (checked.policy is not None), text
        for finding in (*checked.errors, *checked.warnings):
            assert "\n" not in str(finding)
            assert 1 <= finding.line <= len(text.splitlines()) + 2, text
        if checked.policy is not None:
            good += 1
            for rule in checked.policy.rules:
                matches(rule.when, FACTS)
    assert good > TRIES / 50


def test_arbitrary_bytes() -> None:
    rng = random.Random(7)
    for _ in range(TRIES):
        raw = bytearray(FULL.encode())
        for _ in range(rng.randint(1, 10)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        checked = examine(bytes(raw), "p")
        assert bool(checked.errors) != (checked.policy is not None)


def test_both_parsers_agree() -> None:
    """On what is right, but for what only one of them takes for YAML."""
    from sbatch_router.policy_yaml import nodes

    rng = random.Random(5)
    loader = nodes._LOADER
    try:
        for _ in range(TRIES // 10):
            text = mutate(FULL, rng)
            nodes._LOADER = loader
            one = examine(text, "p")
            nodes._LOADER = yaml.SafeLoader
            two = examine(text, "p")
            if not any("not valid YAML" in error.message for error in one.errors + two.errors):
                assert one.policy == two.policy, text
    finally:
        nodes._LOADER = loader


def test_cases_files() -> None:
    rng = random.Random(3)
    policies = Path(__file__).resolve().parents[2] / "policies"
    files = sorted(policies.glob("*.cases.yaml"))
    for _ in range(TRIES // 10):
        file = rng.choice(files)
        policy = load(str(file).replace(".cases.yaml", ".yaml"))
        text = mutate(file.read_text(encoding="utf-8"), rng)
        report = Report("c")
        try:
            found = read_cases(text.encode("utf-8", "surrogatepass"), report)
        except Unreadable:
            assert report.errors
            continue
        if not report.errors:
            for case in found.cases:
                list(unmet(decision(case, found.partitions, policy), case.expect))
