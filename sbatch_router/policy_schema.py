"""The policy format as JSON Schema and as a reference for people.

Both come from the table the loader uses (policy_yaml/spec.py). Run
``python -m sbatch_router.policy_schema`` in the source tree to write
policies/policy.schema.json and docs/policy.md anew; a test checks that they are current.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, Tuple

from .policy_yaml import spec, values
from .policy_yaml.reference import reference

Schema = Dict[str, Any]


def schema() -> Schema:
    """The JSON Schema (draft 2020-12) of a policy. It knows the structure, not the names:
    whether a candidate is among the accounts only the loader says."""
    top = _mapping(spec.POLICY)
    top["anyOf"] = [{"required": ["accounts"]}, {"required": ["blocked"]}]
    top["dependentRequired"] = {"rules": ["accounts"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "sbatch-router policy",
        **top,
        "$defs": _definitions(),
    }


def schema_text() -> str:
    """The schema as the file has it."""
    return json.dumps(schema(), indent=2) + "\n"


def _definitions() -> Dict[str, Schema]:
    found: Dict[str, Schema] = {
        "name": _scalar(values.NAME),
        "account": {"anyOf": [_ref("name"), _mapping(spec.ACCOUNT)]},
        "blocked_account": _mapping(spec.BLOCKED),
        "rule": _mapping(spec.RULE),
        "when": _when(),
    }
    for kind, pattern in _TESTS.items():
        one = _scalar(pattern)
        if kind not in ("text", "folded"):
            number = "number" if kind == "mem" else "integer"
            one.update(type=["string", number], minimum=0, maximum=10**15 - 1)
        found[f"{kind}_test"] = _one_or_more(one, unique=False)
    return found


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _scalar(pattern: str) -> Schema:
    """Text; or what an editor takes for a number or a truth value, which we read as text."""
    return {"type": ["string", "number", "boolean"], "pattern": f"^(?:{pattern})$"}


def _one_or_more(item: Schema, unique: bool = True) -> Schema:
    several: Schema = {"type": "array", "minItems": 1, "items": item}
    if unique:
        several["uniqueItems"] = True
    return {"anyOf": [item, several]}


def _mapping(keys: Tuple[spec.Key, ...]) -> Schema:
    found: Schema = {"type": "object", "additionalProperties": False}
    found["properties"] = {key.name: _property(key) for key in keys}
    required = [key.name for key in keys if key.required]
    if required:
        found["required"] = required
    return found


def _property(key: spec.Key) -> Schema:
    about = key.about + (f" Default: {key.default}." if key.default else "")
    return {"description": about, **_KINDS[key.kind](key)}


def _words(key: spec.Key) -> Schema:
    return {"enum": [word for word, _ in key.words]}


def _when_full(_: spec.Key) -> Schema:
    wait = {"type": "object", "additionalProperties": False, "required": ["wait"]}
    wait["properties"] = {"wait": {"type": "string", "pattern": f"^{values.UNITS}$"}}
    text = {"type": "string", "pattern": rf"^(?:refuse|queue|wait +{values.UNITS})$"}
    return {"anyOf": [text, wait]}


def _duration(_: spec.Key) -> Schema:
    text = {"type": "string", "pattern": f"^(?:0|{values.UNITS})$"}
    return {"anyOf": [{"const": 0}, text]}


def _when() -> Schema:
    properties = {m.name: {"description": m.about, **_ref(f"{m.kind}_test")} for m in spec.MATCHERS}
    wildcard = {"description": spec.WILDCARD.about, **_ref(f"{spec.WILDCARD.kind}_test")}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "patternProperties": {f"^{spec.WILDCARD_KEY}$": wildcard},
    }


def _number_test(one: str, unlimited: str = "(?!)") -> str:
    end = rf"\s*{one}\s*"
    compared = rf"(?:==|!=|<=|>=|<|>)?{end}|{end}\.\.{end}"
    return rf"\s*(?:{compared}|(?:==|!=)?\s*{unlimited}\s*)"


_TESTS = {
    "count": _number_test(values.COUNT),
    "mem": _number_test(values.MEM),
    "time": _number_test(
        f"(?:{values.COUNT}|{values.UNITS}|{values.CLOCK}|{values.DAYS})", values.UNLIMITED
    ),
    "text": r"\s*(?:==|!=)?\s*(?![<>=]|!=)\S[\s\S]*",
    "folded": r"\s*(?:==|!=)?\s*(?![<>=]|!=)\S[\s\S]*",
}

_KINDS: Dict[str, Callable[[spec.Key], Schema]] = {
    "version": lambda _: {"enum": [1, "1"]},
    "accounts": lambda _: {"type": "array", "minItems": 1, "items": _ref("account")},
    "blocked": lambda _: {"type": "array", "items": _ref("blocked_account")},
    "rules": lambda _: {"type": "array", "items": _ref("rule")},
    "words": _words,
    "order": lambda key: _one_or_more(_words(key)),
    "when_full": _when_full,
    "explicit_account": lambda _: _mapping(spec.EXPLICIT_ACCOUNT),
    "duration": _duration,
    "name": lambda _: _ref("name"),
    "names": lambda _: _one_or_more(_ref("name")),
    "when": lambda _: _ref("when"),
    "reason": lambda _: {"type": ["string", "number", "boolean"], "pattern": r"\S"},
    "date": lambda _: {"type": "string", "format": "date", "pattern": f"^{values.DATE}$"},
    "label": lambda _: {"type": ["string", "number", "boolean"], "maxLength": 100, "minLength": 1},
    "candidates": lambda _: _one_or_more(_scalar(f"{values.NAME}(?:/{values.NAME})?")),
}


def write(root: Path) -> None:
    """Write both files of the source tree at `root`."""
    (root / "policies" / "policy.schema.json").write_text(schema_text(), encoding="utf-8")
    (root / "docs" / "policy.md").write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(__file__).resolve().parent.parent)
