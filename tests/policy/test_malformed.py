"""Every error of a wrong policy, with its line, from either of PyYAML's parsers."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from malformed import MALFORMED, TWO, WHEN

from sbatch_router.policy_yaml import nodes
from sbatch_router.policyfile import PolicyErrors, load, loads

LOADERS = [yaml.SafeLoader]
if yaml.__with_libyaml__:
    LOADERS.append(yaml.CSafeLoader)


@pytest.mark.parametrize("loader", LOADERS, ids=lambda loader: loader.__name__)
@pytest.mark.parametrize(
    ("text", "expected"), [case[1:] for case in MALFORMED], ids=[case[0] for case in MALFORMED]
)
def test_every_error_is_named(
    text: Any, expected: Any, loader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "_LOADER", loader)
    with pytest.raises(PolicyErrors) as caught:
        loads(text, "p.yaml")
    found = [str(error) for error in caught.value.errors]
    assert len(found) == len(expected), found
    for one, wanted in zip(found, expected):
        if wanted.endswith("..."):
            assert one.startswith("p.yaml:" + wanted[:-3])
        else:
            assert one == "p.yaml:" + wanted
    assert str(caught.value) == "\n".join(found)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (WHEN + "    gpus: >0\n", 'needs quotes, as in ">0"'),
        (TWO + "rules: [{when: {rule: *}}]\n", 'needs quotes, as in "*"'),
        (WHEN + "    rule: [ab]*\n", 'needs quotes, as in "[ab]*"'),
        (TWO + "when_full: wait: 10m\n", 'write `when_full: {wait: 10m}` or `when_full: "wait'),
    ],
)
def test_yaml_errors_say_what_to_write(text: str, hint: str) -> None:
    with pytest.raises(PolicyErrors, match="not valid YAML") as caught:
        loads(text)
    assert hint in str(caught.value)


def test_huge_file(tmp_path: Any) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("# " + "x" * (1 << 20) + "\n")
    with pytest.raises(PolicyErrors, match="1: file: is larger than 1 MiB") as caught:
        load(path)
    assert len(caught.value.errors) == 1


def test_unreadable_files(tmp_path: Any) -> None:
    missing = tmp_path / "none.yaml"
    with pytest.raises(PolicyErrors, match=r"none.yaml:1: file: cannot be read: No such file"):
        load(missing)
    with pytest.raises(PolicyErrors, match="cannot be read: Is a directory"):
        load(tmp_path)
    with pytest.raises(PolicyErrors, match="cannot be read: "):
        load("a\0b")


def test_many_errors_stay_quick() -> None:
    text = "version: 1\naccounts: [a]\n" + "".join(f"k{n}: v\n" for n in range(20_000))
    with pytest.raises(PolicyErrors) as caught:
        loads(text)
    assert len(caught.value.errors) == 101
    assert caught.value.errors[-1].message == "and 19900 more errors"
