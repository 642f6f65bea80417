"""docs/policy.md, made from the table of keys."""

from __future__ import annotations

from typing import List, Tuple

from . import spec

_INTRO = """\
<!-- Made by `python -m sbatch_router.policy_schema`. Change sbatch_router/policy_yaml/. -->

# The policy file

A policy says which Slurm accounts the router may choose, and how. It is YAML:

```yaml
# yaml-language-server: $schema=policy.schema.json
version: 1
accounts: [maigan, clive]
blocked:
  - account: brusko
    reason: throttled to 1 GPU and full since March; the PI asked us to stay off
rules:
  - name: gpu jobs
    when: {gpus: ">0"}
    order: [gpu, mem]
when_full: refuse
```

More examples, each with its cases, are in `policies/`. `sbatch-router check FILE` names every
error and runs the cases beside the file; `policies/policy.schema.json` does part of that in an
editor.

The file is looked for in `$SBATCH_ROUTER_POLICY`, `~/.config/sbatch-router/policy.yaml` and
`/etc/sbatch-router/policy.yaml`; the first counts. The `blocked` of the file in `/etc` binds
users with a file of their own as well.

Every value is read as the text you wrote: an account named `no`, `0123` or `1e3` needs no
quotes. Quotes are needed where YAML gives a character a meaning: a value that begins with `>`,
`*`, `!`, `[` or `{`, and `, ` or `: ` inside. Anchors, aliases, merge keys and tags are not
used in a policy. In messages, entries of a list are counted from 1: `rules[2].when.gpus`.
"""

_CONDITIONS = """\
## Conditions

`when` and `only` are mappings from a matcher to a condition. All of them must hold.

| condition | holds if the fact is |
|---|---|
| `4`, `==4` | exactly this |
| `!=4` | anything else |
| `">0"`, `">=2"`, `"<=4h"`, `"<64G"` | larger, smaller... |
| `2..8`, `1h..1d` | in this range, both ends included |
| `qc_*`, `"*_[0-9]"`, `sample?` | text that matches the shell pattern as a whole |
| `"!=qc_*"` | text that does not match it |
| `[1, 2, ">8"]`, `[qc_*, trim]` | any of these |
| `[gpu*, "!=gpu-test"]`, `["!=a", "!=b"]` | any of these, but none of those after `!=` |

Memory is in `K`, `M`, `G`, `T` or `P` as for sbatch, MiB without a unit. A time is `30m`, `4h`,
`1h30m`, `2d`, or Slurm's `HH:MM:SS` and `D-HH:MM:SS`, minutes without a unit, or `unlimited`,
which is more than any number. `1:30` is refused: Slurm means minutes and seconds by it, people
mostly do not.

Patterns know `*`, `?`, `[abc]`, `[a-z]` and `[!a]`. {folded} are compared
without regard to case, everything else exactly.

Amounts are those of the whole job, of one task for an array: `-n 4 -c 2` has 8 `cpus`.

**What is not known decides nothing.** A job that is not Snakemake's has no `rule`, and a script
that cannot be read leaves its memory open: no condition on such a fact holds, not even `!=`.

Where a fact has several values (`-p a,b`, the rules of a group job), a condition holds if any
of them meets it, and a `!=` if none of them is the one excluded.
"""


_CASES = """\
## Cases

`NAME.cases.yaml` beside `NAME.yaml` says what the policy does with some calls of sbatch, on
clusters that are imagined in a few words. `sbatch-router check` runs it.

```yaml
pools:                              # what Slurm says, for every case
  maigan: {limits: "cpu=80,mem=625G,gres/gpu=2"}
  maigan/maigan-b: {limits: "cpu=360"}          # a QOS that has not the account's name
  clive: {limits: "cpu=40,mem=312.5G"}
cases:
  - name: a neighbour has filled clive
    sbatch: --mem=125G -c 8 decon.sh            # or a list; script: and env: go with it
    pools:                                      # on top of those above
      clive: {used_by_others: "cpu=32,mem=256G"}
    expect: {action: route, account: maigan, verdicts: {clive: waits_others}}
```

- A pool: `limits` (the QOS's GrpTRES), `used_by_others`, `used_by_me`, `pending_mine` (a list
  for several jobs), `max_per_job`, `max_per_user`, `flags` (such as `DenyOnLimit`), and
  `unknown: yes` for a QOS that Slurm says nothing of. An account's first pool is its default.
- A case: `name`, `sbatch`, `script`, `env`, `user`, `pools`, `silent: yes` for a Slurm that
  does not answer, `user_policy` (a user's own file, this one being the site's) and `expect`.
- Expected: `action`, `account`, `qos`, `rule`, `exit`, `wait` (seconds), a part of `why` or of
  a `note`, and `verdicts` and `reasons` by `account` or `account/qos`.
- `user` (`alice`) and `partitions` (`[main]`, the default first) may be given for the file. A
  job that does not say has 4 GiB a CPU and an hour.
"""


def reference() -> str:
    """The whole page."""
    folded = " and ".join(f"`{m.name}`" for m in spec.MATCHERS if m.kind == "folded")
    parts = [
        _INTRO,
        "## The file\n\n" + _table(spec.POLICY),
        "## An account\n\nA name alone, or a mapping:\n\n" + _table(spec.ACCOUNT),
        "## A blocked account\n\n" + _table(spec.BLOCKED),
        "## A rule\n\n" + _table(spec.RULE),
        _words("### order", spec.ORDER),
        _words("### when_full", spec.WHEN_FULL)
        + "\nA wait is written `{wait: 10m}` or `wait 10m`, from `1s` to `30d`.\n",
        _words("### own_backlog", spec.OWN_BACKLOG),
        "## explicit_account\n\n"
        + _table(spec.EXPLICIT_ACCOUNT)
        + "\n"
        + _words("", spec.EXPLICIT)
        + "\nA job that names an account outside `accounts` is never touched.\n",
        _CONDITIONS.format(folded=folded),
        _matchers(),
        _CASES,
    ]
    for key in spec.POLICY:
        if key.kind == "words" and key.name not in ("own_backlog",):
            parts.insert(-3, _words(f"## {key.name}", key.words))
    return "\n".join(parts)


def _table(keys: Tuple[spec.Key, ...]) -> str:
    lines = ["| key | what it says | default |", "|---|---|---|"]
    for key in keys:
        default = "**required**" if key.required else _default(key)
        lines.append(f"| `{key.name}` | {key.about} | {default} |")
    return "\n".join(lines) + "\n"


def _default(key: spec.Key) -> str:
    literal = key.kind in ("words", "when_full", "explicit_account", "duration")
    return f"`{key.default}`" if literal and "'" not in key.default else key.default


def _words(heading: str, words: Tuple[Tuple[str, str], ...]) -> str:
    lines: List[str] = [heading, ""] if heading else []
    lines += [f"- `{word}`: {about}" for word, about in words]
    return "\n".join(lines) + "\n"


def _matchers() -> str:
    kinds = {"count": "number", "mem": "memory", "time": "time", "text": "text", "folded": "text"}
    lines = ["## Matchers", "", "| matcher | kind | the fact |", "|---|---|---|"]
    for matcher in (*spec.MATCHERS, spec.WILDCARD):
        lines.append(f"| `{matcher.name}` | {kinds[matcher.kind]} | {matcher.about} |")
    return "\n".join(lines) + "\n"
