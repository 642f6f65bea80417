# ruff: noqa: E501
"""Policies that are wrong, and every error each must give: id, text, ``LINE: key: message``.

An expected text that ends in ``...`` is a beginning: YAML's own words differ between parsers.
"""

from __future__ import annotations

from typing import List, Tuple, Union

TWO = "version: 1\naccounts: [maigan, clive]\n"
RULE = TWO + "rules:\n- name: r\n"
WHEN = RULE + "  when:\n"

MALFORMED: List[Tuple[str, Union[str, bytes], List[str]]] = [
    (
        "empty",
        "",
        [
            "1: file: is empty; a policy starts with `version: 1`",
        ],
    ),
    (
        "only comments",
        "# nothing yet\n\n",
        [
            "1: file: is empty; a policy starts with `version: 1`",
        ],
    ),
    (
        "a list",
        "- version: 1\n",
        [
            "1: policy: is a list; expected a mapping with version, accounts and rules",
        ],
    ),
    (
        "a word",
        "\nversion 1\n",
        [
            "2: policy: is `version 1`; expected a mapping with version, accounts and rules",
        ],
    ),
    (
        "null document",
        "~\n",
        [
            "1: policy: is empty (~); expected a mapping with version, accounts and rules",
        ],
    ),
    (
        "two documents",
        TWO + "---\nversion: 1\n",
        [
            "3: file: a second document (---) begins; a policy has one",
        ],
    ),
    (
        "tab",
        "version: 1\naccounts:\n\t- maigan\n",
        [
            "3: file: a tab in the indentation; use spaces",
        ],
    ),
    (
        "nul byte",
        "version: 1\naccounts: [ma\u0000igan]\n",
        [
            "2: file: U+0000 is not a character YAML allows; remove it",
        ],
    ),
    (
        "not utf-8",
        b"version: 1\n# r\xe9sum\xe9\naccounts: [maigan]\n",
        [
            "2: file: byte 0xe9 is not UTF-8; save the file as UTF-8",
        ],
    ),
    (
        "utf-16",
        b"\xff\xfev\x00e\x00r\x00s\x00i\x00o\x00n\x00:\x00 \x001\x00\n\x00",
        [
            "1: file: is UTF-16; save it as UTF-8",
        ],
    ),
    (
        "unclosed list",
        "version: 1\naccounts: [maigan, clive\nwhen_full: refuse\n",
        [
            "3: file: not valid YAML: ...",
        ],
    ),
    (
        "unclosed quote",
        'version: 1\naccounts: [maigan]\nsource: "auto\n',
        [
            "3: file: not valid YAML: ...",
        ],
    ),
    (
        "bad indentation",
        "version: 1\naccounts:\n  - name: maigan\n   qos: x\n",
        [
            "4: file: not valid YAML: ...",
        ],
    ),
    (
        "too deep",
        "version: 1\naccounts: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n",
        [
            "2: file: nested deeper than 20 levels",
        ],
    ),
    (
        "no YAML in a long line",
        "version: 1\naccounts: ] " + "[" * 200_000 + "\n",
        [
            "2: file: not valid YAML: ...",
        ],
    ),
    (
        "bad directive",
        "%YAML 2.0\n---\nversion: 1\n",
        [
            "1: file: not valid YAML: ...",
        ],
    ),
    (
        "anchor",
        "version: 1\naccounts: &mine [maigan]\n",
        [
            "2: accounts: `&mine` is an anchor; a policy has none: write the value out",
        ],
    ),
    (
        "alias",
        "version: 1\naccounts:\n- *mine\n",
        [
            "3: accounts[1]: `*mine` is read as an alias; quote a value that begins with *",
        ],
    ),
    (
        "alias bomb",
        "a: &a [x, x]\nb: &b [*a, *a]\nversion: 1\naccounts: [*b, *b]\n",
        [
            "1: a: `&a` is an anchor; a policy has none: write the value out",
            "1: a: unknown key; expected version, accounts, blocked, rules, when_full, own_backlog, explicit_account, when_slurm_unreachable, source or cache",
            "2: b: `&b` is an anchor; a policy has none: write the value out",
            "2: b[1]: `*a` is read as an alias; quote a value that begins with *",
            "2: b[2]: `*a` is read as an alias; quote a value that begins with *",
            "2: b: unknown key; expected version, accounts, blocked, rules, when_full, own_backlog, explicit_account, when_slurm_unreachable, source or cache",
            "4: accounts[1]: `*b` is read as an alias; quote a value that begins with *",
            "4: accounts[2]: `*b` is read as an alias; quote a value that begins with *",
        ],
    ),
    (
        "merge key",
        "version: 1\naccounts:\n- <<: {name: maigan}\n",
        [
            "3: accounts[1]: `<<` is a merge key; a policy has none: write it out",
        ],
    ),
    (
        "python tag",
        "version: 1\naccounts: !!python/object/apply:os.system [id]\n",
        [
            "2: accounts: `!!python/object/apply:os.system` is read as a YAML tag; quote a value that begins with !",
        ],
    ),
    (
        "tag on a name",
        "version: 1\naccounts: [!!str maigan]\n",
        [
            "2: accounts[1]: `!!str` is read as a YAML tag; quote a value that begins with !",
        ],
    ),
    (
        "list as a key",
        TWO + "? [a, b]\n: c\n",
        [
            "3: policy: a key must be a word, not a list or a mapping",
        ],
    ),
    (
        "duplicate key",
        TWO + "cache: 5s\nsource: auto\ncache: 2m\n",
        [
            "5: cache: is given twice (first on line 3); keep one",
        ],
    ),
    (
        "duplicate key within",
        TWO + "rules:\n- order: mem\n  order: cpu\n",
        [
            "5: rules[1].order: is given twice (first on line 4); keep one",
        ],
    ),
    (
        "no version",
        "accounts: [maigan]\n",
        [
            "1: version: is missing; expected `version: 1`",
        ],
    ),
    (
        "version 2",
        "version: 2\naccounts: [maigan]\n",
        [
            "1: version: is `2`; expected 1; a newer sbatch-router may read it",
        ],
    ),
    (
        "version 1.0",
        "version: 1.0\naccounts: [maigan]\n",
        [
            "1: version: is `1.0`; expected 1",
        ],
    ),
    (
        "version one",
        "version: one\naccounts: [maigan]\n",
        [
            "1: version: is `one`; expected 1",
        ],
    ),
    (
        "version null",
        "version:\naccounts: [maigan]\n",
        [
            "1: version: is empty; expected 1",
        ],
    ),
    (
        "version list",
        "version: [1]\naccounts: [maigan]\n",
        [
            "1: version: is a list; expected 1",
        ],
    ),
    (
        "no accounts",
        "version: 1\n",
        [
            "1: accounts: is missing; expected a list of accounts",
        ],
    ),
    (
        "only rules",
        "version: 1\nblocked: []\nrules: []\n",
        [
            "3: rules: there are no accounts to choose from; add `accounts`",
        ],
    ),
    (
        "unknown key",
        TWO + "when_ful: refuse\n",
        [
            "3: when_ful: unknown key; did you mean `when_full`?",
        ],
    ),
    (
        "unknown key, case",
        TWO + "Cache: 5s\n",
        [
            "3: Cache: unknown key; did you mean `cache`?",
        ],
    ),
    (
        "unknown key, far",
        TWO + "colour: red\n",
        [
            "3: colour: unknown key; expected version, accounts, blocked, rules, when_full, own_backlog, explicit_account, when_slurm_unreachable, source or cache",
        ],
    ),
    (
        "many at once",
        "version: 3\nacounts: [x]\nblocked: brusko\nrules: {}\nwhen_full: maybe\ncache: 5\nsource: slurm\n",
        [
            "1: version: is `3`; expected 1; a newer sbatch-router may read it",
            "2: acounts: unknown key; did you mean `accounts`?",
            "3: blocked: is `brusko`; expected a list",
            "4: rules: is a mapping; expected a list",
            "5: when_full: is `maybe`; expected refuse, queue or {wait: 10m}",
            "6: cache: is `5`; expected a duration in seconds, minutes, hours or days such as 5s, 2m, 1h, or 0",
            "7: source: is `slurm`; expected auto, pyslurm or scontrol; did you mean `pyslurm`?",
        ],
    ),
    (
        "accounts empty",
        "version: 1\naccounts: []\n",
        [
            "2: accounts: is empty; expected an account",
        ],
    ),
    (
        "accounts null",
        "version: 1\naccounts:\n",
        [
            "2: accounts: is empty; expected a list",
        ],
    ),
    (
        "accounts text",
        "version: 1\naccounts: maigan\n",
        [
            "2: accounts: is `maigan`; expected a list",
        ],
    ),
    (
        "accounts mapping",
        "version: 1\naccounts: {maigan: {}}\n",
        [
            "2: accounts: is a mapping; expected a list",
        ],
    ),
    (
        "account null",
        "version: 1\naccounts:\n- maigan\n-\n",
        [
            "4: accounts[2]: is empty; expected an account name",
        ],
    ),
    (
        "account list",
        "version: 1\naccounts:\n- [maigan]\n",
        [
            "3: accounts[1]: is a list; expected an account name or a mapping with name",
        ],
    ),
    (
        "account without name",
        "version: 1\naccounts:\n- qos: maigan\n",
        [
            "3: accounts[1].name: is missing; expected an account",
        ],
    ),
    (
        "account as key",
        "version: 1\naccounts:\n- maigan: {qos: x}\n",
        [
            "3: accounts[1].maigan: unknown key; expected name, qos or only",
            "3: accounts[1].name: is missing; expected an account",
        ],
    ),
    (
        "account with space",
        "version: 1\naccounts:\n- mai gan\n",
        [
            "3: accounts[1]: is `mai gan`; expected an account name: one word without spaces, commas, slashes or quotes",
        ],
    ),
    (
        "account with comma",
        "version: 1\naccounts:\n- 'maigan,clive'\n",
        [
            "3: accounts[1]: is `maigan,clive`; expected an account name: one word without spaces, commas, slashes or quotes",
        ],
    ),
    (
        "account twice",
        "version: 1\naccounts:\n- maigan\n- clive\n- name: MAIGAN\n",
        [
            "5: accounts[3].name: `maigan` is given twice (first on line 3); keep one",
        ],
    ),
    (
        "account key misspelt",
        "version: 1\naccounts:\n- name: maigan\n  qoss: maigan-b\n",
        [
            "4: accounts[1].qoss: unknown key; did you mean `qos`?",
        ],
    ),
    (
        "qos empty list",
        "version: 1\naccounts:\n- name: maigan\n  qos: []\n",
        [
            "4: accounts[1].qos: is an empty list; leave the key out or name one",
        ],
    ),
    (
        "qos twice",
        "version: 1\naccounts:\n- name: maigan\n  qos: [a, b, A]\n",
        [
            "4: accounts[1].qos[3]: `A` is given twice; keep one",
        ],
    ),
    (
        "qos mapping",
        "version: 1\naccounts:\n- name: maigan\n  qos: {a: b}\n",
        [
            "4: accounts[1].qos: is a mapping; expected a QOS name",
        ],
    ),
    (
        "qos slash",
        "version: 1\naccounts:\n- name: maigan\n  qos: [maigan/b]\n",
        [
            "4: accounts[1].qos[1]: is `maigan/b`; expected a QOS name: one word without spaces, commas, slashes or quotes",
        ],
    ),
    (
        "only text",
        "version: 1\naccounts:\n- name: maigan\n  only: gpus\n",
        [
            '4: accounts[1].only: is `gpus`; expected a mapping such as {gpus: ">0"}',
        ],
    ),
    (
        "blocked text",
        TWO + "blocked: brusko\n",
        [
            "3: blocked: is `brusko`; expected a list",
        ],
    ),
    (
        "blocked names",
        TWO + "blocked: [brusko]\n",
        [
            "3: blocked[1]: is `brusko`; expected a mapping with account and reason",
        ],
    ),
    (
        "blocked without reason",
        TWO + "blocked:\n- account: brusko\n",
        [
            "4: blocked[1].reason: is missing; expected why the account is blocked",
        ],
    ),
    (
        "blocked empty reason",
        TWO + "blocked:\n- account: brusko\n  reason: ''\n",
        [
            "5: blocked[1].reason: is empty; expected why the account is blocked",
        ],
    ),
    (
        "blocked blank reason",
        TWO + "blocked:\n- account: brusko\n  reason: '  '\n",
        [
            "5: blocked[1].reason: is empty; expected why the account is blocked",
        ],
    ),
    (
        "blocked null reason",
        TWO + "blocked:\n- account: brusko\n  reason: ~\n",
        [
            "5: blocked[1].reason: is empty (~); expected why the account is blocked",
        ],
    ),
    (
        "blocked without account",
        TWO + "blocked:\n- reason: full\n",
        [
            "4: blocked[1].account: is missing; expected an account",
        ],
    ),
    (
        "blocked twice",
        TWO + "blocked:\n- {account: brusko, reason: full}\n- {account: brusko, reason: full}\n",
        [
            "5: blocked[2].account: `brusko` is given twice (first on line 4); keep one",
        ],
    ),
    (
        "bad date",
        TWO
        + "blocked:\n- account: brusko\n  reason: full\n  since: 2026-02-30\n  review: next year\n",
        [
            "6: blocked[1].since: is `2026-02-30`; expected a date such as 2026-12-31",
            "7: blocked[1].review: is `next year`; expected a date such as 2026-12-31",
        ],
    ),
    (
        "date and time",
        TWO + "blocked:\n- account: brusko\n  reason: full\n  since: 2026-03-02T10:00:00\n",
        [
            "6: blocked[1].since: is `2026-03-02T10:00:00`; expected a date such as 2026-12-31",
        ],
    ),
    (
        "rules mapping",
        TWO + "rules: {order: mem}\n",
        [
            "3: rules: is a mapping; expected a list",
        ],
    ),
    (
        "rule text",
        TWO + "rules:\n- mem\n",
        [
            "4: rules[1]: is `mem`; expected a mapping such as {order: [mem]}",
        ],
    ),
    (
        "rule name twice",
        TWO + "rules:\n- {name: a, when: {gpus: 1}}\n- {name: a, order: mem}\n",
        [
            "5: rules[2].name: `a` is given twice (first on line 4); keep one",
        ],
    ),
    (
        "rule name null",
        TWO + "rules:\n- name:\n  order: mem\n",
        [
            "4: rules[1].name: is empty; expected a name",
        ],
    ),
    (
        "rule key misspelt",
        TWO + "rules:\n- name: a\n  wen: {gpus: 1}\n",
        [
            "5: rules[1].wen: unknown key; did you mean `when`?",
        ],
    ),
    (
        "order unknown",
        RULE + "  order: [memory, cpu]\n",
        [
            "5: rules[1].order[1]: is `memory`; expected gpu, mem, cpu, node, billing, fit, backlog, fairshare, primary or listed; did you mean `mem`?",
        ],
    ),
    (
        "order twice",
        RULE + "  order: [mem, cpu, mem]\n",
        [
            "5: rules[1].order[3]: `mem` is given twice; keep one",
        ],
    ),
    (
        "order empty",
        RULE + "  order: []\n",
        [
            "5: rules[1].order: is an empty list; leave the key out or name one",
        ],
    ),
    (
        "order nested",
        RULE + "  order: [[mem]]\n",
        [
            "5: rules[1].order[1]: is a list; expected gpu, mem, cpu, node, billing, fit, backlog, fairshare, primary or listed",
        ],
    ),
    (
        "candidate unknown",
        RULE + "  candidates: [magan]\n",
        [
            "5: rules[1].candidates[1]: `magan` is not in accounts; did you mean `maigan`?",
        ],
    ),
    (
        "candidate qos unknown",
        "version: 1\naccounts:\n- name: maigan\n  qos: [maigan, maigan-b]\nrules:\n- candidates: [maigan/maigan-c]\n",
        [
            "6: rules[1].candidates[1]: `maigan-c` is not in the qos of maigan; did you mean `maigan-b`?",
        ],
    ),
    (
        "candidate two slashes",
        RULE + "  candidates: maigan/a/b\n",
        [
            "5: rules[1].candidates: is `maigan/a/b`; expected account or account/qos (a QOS name: one word without spaces, commas, slashes or quotes)",
        ],
    ),
    (
        "candidate trailing slash",
        RULE + "  candidates: [maigan/]\n",
        [
            "5: rules[1].candidates[1]: is `maigan/`; expected account or account/qos (a QOS name: one word without spaces, commas, slashes or quotes)",
        ],
    ),
    (
        "candidate twice",
        RULE + "  candidates: [maigan, Maigan]\n",
        [
            "5: rules[1].candidates[2]: `Maigan` is given twice; keep one",
        ],
    ),
    (
        "candidates mapping",
        RULE + "  candidates: {maigan: b}\n",
        [
            "5: rules[1].candidates: is a mapping; expected account or account/qos",
        ],
    ),
    (
        "rule when_full",
        RULE + "  when_full: drop\n",
        [
            "5: rules[1].when_full: is `drop`; expected refuse, queue or {wait: 10m}",
        ],
    ),
    (
        "rule own_backlog",
        RULE + "  own_backlog: refused\n",
        [
            "5: rules[1].own_backlog: is `refused`; expected queue or refuse; did you mean `refuse`?",
        ],
    ),
    (
        "when list",
        RULE + "  when: [gpus]\n",
        [
            '5: rules[1].when: is a list; expected a mapping such as {gpus: ">0"}',
        ],
    ),
    (
        "when null",
        WHEN + "",
        [
            '5: rules[1].when: is empty; expected a mapping such as {gpus: ">0"}',
        ],
    ),
    (
        "unquoted >0",
        WHEN + "    gpus: >0\n",
        [
            "6: file: not valid YAML: ...",
        ],
    ),
    (
        "unquoted >4",
        WHEN + "    gpus: >4\n",
        [
            '6: rules[1].when.gpus: is a block (| or >, not in quotes); expected a whole number such as 4, or a test such as ">0" or 2..8',
        ],
    ),
    (
        "unquoted >0 in braces",
        RULE + "  when: {gpus: >0}\n",
        [
            "5: file: not valid YAML: ...",
        ],
    ),
    (
        "unquoted star",
        WHEN + "    rule: *_qc\n",
        [
            "6: rules[1].when.rule: `*_qc` is read as an alias; quote a value that begins with *",
        ],
    ),
    (
        "unquoted !=",
        WHEN + "    rule: !=qc\n",
        [
            "6: rules[1].when.rule: `!=qc` is read as a YAML tag; quote a value that begins with !",
        ],
    ),
    (
        "unquoted bracket",
        WHEN + "    rule: [ab]*\n",
        [
            "6: file: not valid YAML: ...",
        ],
    ),
    (
        "matcher misspelt",
        WHEN + "    gpu: 1\n",
        [
            "6: rules[1].when.gpu: unknown matcher; did you mean `gpus`?",
        ],
    ),
    (
        "matcher unknown",
        WHEN + "    colour: 1\n",
        [
            "6: rules[1].when.colour: unknown matcher; expected gpus, gpu_type, cpus, mem, nodes, time, partition, array, job_name, user, rule, attempt or wildcards.NAME",
        ],
    ),
    (
        "wildcards mapping",
        WHEN + "    wildcards: {sample: a}\n",
        [
            "6: rules[1].when.wildcards: name one wildcard: `wildcards.sample: ...`",
        ],
    ),
    (
        "wildcard without name",
        WHEN + "    wildcards.: a\n",
        [
            "6: rules[1].when.wildcards.: no wildcard has such a name; expected wildcards.NAME",
        ],
    ),
    (
        "condition null",
        WHEN + "    gpus:\n",
        [
            '6: rules[1].when.gpus: is empty; expected a whole number such as 4, or a test such as ">0" or 2..8',
        ],
    ),
    (
        "condition mapping",
        WHEN + "    gpus: {min: 1}\n",
        [
            '6: rules[1].when.gpus: is a mapping; expected a whole number such as 4, or a test such as ">0" or 2..8, or a list',
        ],
    ),
    (
        "condition nested list",
        WHEN + "    gpus: [1, [2]]\n",
        [
            '6: rules[1].when.gpus[2]: is a list; expected a whole number such as 4, or a test such as ">0" or 2..8',
        ],
    ),
    (
        "condition empty list",
        WHEN + "    gpus: []\n",
        [
            '6: rules[1].when.gpus: is an empty list; expected a whole number such as 4, or a test such as ">0" or 2..8',
        ],
    ),
    (
        "count word",
        WHEN + "    gpus: many\n",
        [
            '6: rules[1].when.gpus: is `many`; expected a whole number such as 4, or a test such as ">0" or 2..8',
        ],
    ),
    (
        "count negative",
        WHEN + "    gpus: -1\n",
        [
            '6: rules[1].when.gpus: is `-1`; expected a whole number such as 4, or a test such as ">0" or 2..8',
        ],
    ),
    (
        "count fraction",
        WHEN + "    cpus: '>1.5'\n",
        [
            '6: rules[1].when.cpus: is `>1.5`; expected a whole number such as 4, or a test such as ">0" or 2..8',
        ],
    ),
    (
        "count octal-looking",
        WHEN + "    cpus: 010\n",
        [
            '6: rules[1].when.cpus: is `010`; expected a whole number such as 4, or a test such as ">0" or 2..8',
        ],
    ),
    (
        "count hex",
        WHEN + "    cpus: 0x10\n",
        [
            '6: rules[1].when.cpus: is `0x10`; expected a whole number such as 4, or a test such as ">0" or 2..8',
        ],
    ),
    (
        "count exponent",
        WHEN + "    cpus: 1e3\n",
        [
            '6: rules[1].when.cpus: is `1e3`; expected a whole number such as 4, or a test such as ">0" or 2..8',
        ],
    ),
    (
        "count underscore",
        WHEN + "    cpus: 1_000\n",
        [
            '6: rules[1].when.cpus: is `1_000`; expected a whole number such as 4, or a test such as ">0" or 2..8',
        ],
    ),
    (
        "count nan",
        WHEN + "    nodes: .nan\n",
        [
            '6: rules[1].when.nodes: is `.nan`; expected a whole number such as 4, or a test such as ">0" or 2..8',
        ],
    ),
    (
        "count inf",
        WHEN + "    nodes: '>.inf'\n",
        [
            '6: rules[1].when.nodes: is `>.inf`; expected a whole number such as 4, or a test such as ">0" or 2..8',
        ],
    ),
    (
        "count true",
        WHEN + "    array: yes\n",
        [
            '6: rules[1].when.array: is `yes`; expected a whole number such as 4, or a test such as ">0" or 2..8',
        ],
    ),
    (
        "count huge",
        WHEN + "    array: 99999999999999999999\n",
        [
            '6: rules[1].when.array: is `99999999999999999999`; expected a whole number such as 4, or a test such as ">0" or 2..8',
        ],
    ),
    (
        "count operator",
        WHEN + "    gpus: '=>1'\n",
        [
            '6: rules[1].when.gpus: is `=>1`; expected a whole number such as 4, or a test such as ">0" or 2..8',
        ],
    ),
    (
        "count operator alone",
        WHEN + "    gpus: '>'\n",
        [
            '6: rules[1].when.gpus: is `>`; expected a whole number such as 4, or a test such as ">0" or 2..8',
        ],
    ),
    (
        "count with unit",
        WHEN + "    gpus: 4G\n",
        [
            '6: rules[1].when.gpus: is `4G`; expected a whole number such as 4, or a test such as ">0" or 2..8',
        ],
    ),
    (
        "count glob",
        WHEN + "    gpus: '*'\n",
        [
            '6: rules[1].when.gpus: is `*`; expected a whole number such as 4, or a test such as ">0" or 2..8',
        ],
    ),
    (
        "range reversed",
        WHEN + "    gpus: 8..2\n",
        [
            "6: rules[1].when.gpus: is `8..2`; expected the smaller end of a range first: 2..8",
        ],
    ),
    (
        "range open",
        WHEN + "    gpus: 2..\n",
        [
            "6: rules[1].when.gpus: is `2..`; expected a whole number such as 4",
        ],
    ),
    (
        "range with operator",
        WHEN + "    gpus: '>2..8'\n",
        [
            "6: rules[1].when.gpus: is `>2..8`; expected either a range or >, not both",
        ],
    ),
    (
        "mem unit",
        WHEN + "    mem: '>64GX'\n",
        [
            '6: rules[1].when.mem: is `>64GX`; expected an amount of memory such as 250G (K, M, G, T; a bare number is MiB), or a test such as ">64G" or 1G..16G',
        ],
    ),
    (
        "mem word",
        WHEN + "    mem: lots\n",
        [
            '6: rules[1].when.mem: is `lots`; expected an amount of memory such as 250G (K, M, G, T; a bare number is MiB), or a test such as ">64G" or 1G..16G',
        ],
    ),
    (
        "time sexagesimal",
        WHEN + "    time: 1:30\n",
        [
            '6: rules[1].when.time: is `1:30`; expected a time such as 30m, 4h, 1h30m, 2d or 1-00:00:00 (a bare number is minutes) (1:30 is minutes and seconds to Slurm), or a test such as "<=4h" or 1h..1d',
        ],
    ),
    (
        "time unit",
        WHEN + "    time: 4 hours\n",
        [
            '6: rules[1].when.time: is `4 hours`; expected a time such as 30m, 4h, 1h30m, 2d or 1-00:00:00 (a bare number is minutes), or a test such as "<=4h" or 1h..1d',
        ],
    ),
    (
        "time order",
        WHEN + "    time: 30m1h\n",
        [
            '6: rules[1].when.time: is `30m1h`; expected a time such as 30m, 4h, 1h30m, 2d or 1-00:00:00 (a bare number is minutes), or a test such as "<=4h" or 1h..1d',
        ],
    ),
    (
        "time unlimited compared",
        WHEN + "    time: '<unlimited'\n",
        [
            "6: rules[1].when.time: is `<unlimited`; expected a number to compare with: no time is more than unlimited",
        ],
    ),
    (
        "text compared",
        WHEN + "    job_name: '>5'\n",
        [
            '6: rules[1].when.job_name: is `>5`; expected text: a name or a pattern such as "qc_*" or "!=qc_*"',
        ],
    ),
    (
        "text empty",
        WHEN + "    job_name: ''\n",
        [
            '6: rules[1].when.job_name: is empty; expected a name or a pattern such as "qc_*" or "!=qc_*"',
        ],
    ),
    (
        "text only operator",
        WHEN + "    partition: '!='\n",
        [
            '6: rules[1].when.partition: is `!=`; expected text: a name or a pattern such as "gpu*" or "!=gpu-test"',
        ],
    ),
    (
        "text block",
        WHEN + "    job_name: |\n      qc\n",
        [
            '6: rules[1].when.job_name: is a block (| or >, not in quotes); expected a name or a pattern such as "qc_*" or "!=qc_*"',
        ],
    ),
    (
        "when_full wait on one line",
        TWO + "when_full: wait: 10m\n",
        [
            "3: file: not valid YAML: ...",
        ],
    ),
    (
        "when_full wait alone",
        TWO + "when_full: wait\n",
        [
            "3: when_full: is `wait`; say for how long: {wait: 10m}",
        ],
    ),
    (
        "when_full wait zero",
        TWO + "when_full: {wait: 0}\n",
        [
            "3: when_full.wait: is `0`; expected a time between 1s and 30d (or when_full: refuse)",
        ],
    ),
    (
        "when_full wait no unit",
        TWO + "when_full: {wait: 10}\n",
        [
            "3: when_full.wait: is `10`; expected a duration in seconds, minutes, hours or days such as 5s, 2m, 1h, or 0",
        ],
    ),
    (
        "when_full wait null",
        TWO + "when_full:\n  wait:\n",
        [
            "4: when_full.wait: is empty; expected a duration in seconds, minutes, hours or days such as 5s, 2m, 1h, or 0",
        ],
    ),
    (
        "when_full wait long",
        TWO + "when_full: wait 400d\n",
        [
            "3: when_full: is `400d`; expected a time between 1s and 30d (or when_full: refuse)",
        ],
    ),
    (
        "when_full mapping",
        TWO + "when_full: {refuse: yes}\n",
        [
            "3: when_full.refuse: unknown key; expected refuse, queue or {wait: 10m}",
        ],
    ),
    (
        "when_full empty mapping",
        TWO + "when_full: {}\n",
        [
            "3: when_full: is an empty mapping; expected refuse, queue or {wait: 10m}",
        ],
    ),
    (
        "when_full list",
        TWO + "when_full: [refuse]\n",
        [
            "3: when_full: is a list; expected refuse, queue or {wait: 10m}",
        ],
    ),
    (
        "when_full misspelt",
        TWO + "when_full: refuze\n",
        [
            "3: when_full: is `refuze`; expected refuse, queue or {wait: 10m}; did you mean `refuse`?",
        ],
    ),
    (
        "own_backlog no",
        TWO + "own_backlog: no\n",
        [
            "3: own_backlog: is `no`; expected queue or refuse",
        ],
    ),
    (
        "explicit word",
        TWO + "explicit_account: keep\n",
        [
            "3: explicit_account: is `keep`; expected a mapping such as {cli: keep, env: prefer, script: prefer}",
        ],
    ),
    (
        "explicit unknown",
        TWO + "explicit_account: {cli: keep, enviroment: prefer, script: kept}\n",
        [
            "3: explicit_account.enviroment: unknown key; did you mean `env`?",
            "3: explicit_account.script: is `kept`; expected keep, prefer or override; did you mean `keep`?",
        ],
    ),
    (
        "unreachable",
        TWO + "when_slurm_unreachable: pass\n",
        [
            "3: when_slurm_unreachable: is `pass`; expected submit or refuse",
        ],
    ),
    (
        "source",
        TWO + "source: pyslrm\n",
        [
            "3: source: is `pyslrm`; expected auto, pyslurm or scontrol; did you mean `pyslurm`?",
        ],
    ),
    (
        "source null",
        TWO + "source: null\n",
        [
            "3: source: is empty (null); expected auto, pyslurm or scontrol",
        ],
    ),
    (
        "cache no unit",
        TWO + "cache: 5\n",
        [
            "3: cache: is `5`; expected a duration in seconds, minutes, hours or days such as 5s, 2m, 1h, or 0",
        ],
    ),
    (
        "cache negative",
        TWO + "cache: -5s\n",
        [
            "3: cache: is `-5s`; expected a duration in seconds, minutes, hours or days such as 5s, 2m, 1h, or 0",
        ],
    ),
    (
        "cache fraction",
        TWO + "cache: 1.5s\n",
        [
            "3: cache: is `1.5s`; expected a duration in seconds, minutes, hours or days such as 5s, 2m, 1h, or 0",
        ],
    ),
    (
        "cache long",
        TWO + "cache: 2h\n",
        [
            "3: cache: is `2h`; expected at most 1h",
        ],
    ),
    (
        "cache inf",
        TWO + "cache: .inf\n",
        [
            "3: cache: is `.inf`; expected a duration in seconds, minutes, hours or days such as 5s, 2m, 1h, or 0",
        ],
    ),
    (
        "cache list",
        TWO + "cache: [5s]\n",
        [
            "3: cache: is a list; expected a duration in seconds, minutes, hours or days such as 5s, 2m, 1h, or 0",
        ],
    ),
]
