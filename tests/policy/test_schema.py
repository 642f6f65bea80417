"""The schema, the reference page and the loader agree."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from malformed import MALFORMED
from test_policyfile import FULL

from sbatch_router import policy_schema
from sbatch_router.policy_yaml.reference import reference
from sbatch_router.policyfile import PolicyErrors, loads

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(p for p in (ROOT / "policies").glob("*.yaml") if ".cases." not in p.name)
VALIDATOR = Draft202012Validator(
    policy_schema.schema(), format_checker=Draft202012Validator.FORMAT_CHECKER
)

#: Wrong in a way that only the loader sees: names that must agree, YAML's own forms, sizes.
ONLY_THE_LOADER = frozenset(
    (
        "account twice",
        "anchor",
        "blocked twice",
        "cache fraction",
        "cache long",
        "candidate qos unknown",
        "candidate twice",
        "candidate unknown",
        "count exponent",
        "count octal-looking",
        "duplicate key",
        "duplicate key within",
        "qos twice",
        "range reversed",
        "rule name twice",
        "tag on a name",
        "text block",
        "version 1.0",
        "when_full wait long",
    )
)


class _Editor(yaml.SafeLoader):
    """YAML 1.2's core schema, as editors read it."""


_Editor.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", "~nN"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
):
    _Editor.add_implicit_resolver(
        "tag:yaml.org,2002:" + _tag, re.compile(f"(?:{_pattern})$"), [*_first, ""]
    )


def as_editor(text: Any) -> Any:
    return yaml.load(text, _Editor)


def test_files_are_current() -> None:
    """Run `python -m sbatch_router.policy_schema` if this fails."""
    schema = (ROOT / "policies" / "policy.schema.json").read_text(encoding="utf-8")
    assert schema == policy_schema.schema_text()
    assert (ROOT / "docs" / "policy.md").read_text(encoding="utf-8") == reference()


def test_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(json.loads(policy_schema.schema_text()))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_valid(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    loads(text, path.name)
    assert list(VALIDATOR.iter_errors(as_editor(text))) == []
    assert text.startswith("# yaml-language-server: $schema=policy.schema.json\n")


@pytest.mark.parametrize(
    "text",
    [
        FULL,
        "version: 1\nblocked: []\n",
        "version: '1'\naccounts: [0123, 1e3, no, true, 12]\n",
        "version: 1\naccounts: [a]\nwhen_full: wait 1h30m\ncache: 0\n",
        "version: 1\naccounts: [a]\nwhen_full: {wait: 90s}\ncache: '0'\n",
        "version: 1\naccounts: [a]\nrules: [{when: {mem: 312.5G, cpus: 2..8, time: 1-00:00:00}}]\n",
        "version: 1\naccounts: [a]\nrules: [{when: {wildcards.n: 7, time: 90, gpus: [0, '>4']}}]\n",
        "version: 1\naccounts: [a]\nrules: [{when: {job_name: '!=x', time: '!=unlimited'}}]\n",
        "version: 1\naccounts: [a]\nrules: [{name: 7, candidates: a, order: mem, when: {}}]\n",
    ],
)
def test_schema_accepts_what_the_loader_does(text: str) -> None:
    loads(text)
    assert [error.message for error in VALIDATOR.iter_errors(as_editor(text))] == []


@pytest.mark.parametrize("case", MALFORMED, ids=[case[0] for case in MALFORMED])
def test_schema_refuses_what_the_loader_does(case: Any) -> None:
    name, text, _ = case
    with pytest.raises(PolicyErrors):
        loads(text)
    try:
        instance = as_editor(text)
    except (yaml.YAMLError, ValueError):
        return
    assert VALIDATOR.is_valid(instance) == (name in ONLY_THE_LOADER)
