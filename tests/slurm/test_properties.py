"""Snakemake's jobscript: what its properties line and its command tell (B70)."""

from sbatch_router.slurm.script import read_properties

JOBSCRIPT = b"""#!/bin/sh
# properties = {"type": "group", "groupid": "g1", "threads": 2, "resources": {"mem_mb": 100}}
cd /w && python -m snakemake --target-jobs 'b:' 'a:' --allowed-rules b 'a' --attempt 2 --force
"""


def test_B70_attempt_and_group_rules_come_from_the_jobscripts_command():
    found = read_properties(JOBSCRIPT)
    assert found["attempt"] == 2
    assert found["rules"] == ["b", "a"]
    assert found["threads"] == 2


def test_the_properties_line_overrules_the_command():
    script = JOBSCRIPT.replace(b'"threads": 2', b'"threads": 2, "attempt": 5')
    assert read_properties(script)["attempt"] == 5


def test_a_jobscript_without_those_options_has_no_such_properties():
    script = b'#!/bin/sh\n# properties = {"rule": "a"}\necho --attempts 3\n'
    assert read_properties(script) == {"rule": "a"}
