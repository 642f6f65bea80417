"""A newcomer's way, from `pip install` to a routed job, with what the commands say alone."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest

from .conftest import Cli

pytestmark = pytest.mark.cluster


def test_from_init_to_a_routed_job(cli: Cli) -> None:
    home = cli.cluster.home("alice")
    path = home / ".config/sbatch-router/policy.yaml"
    # A neighbour has filled alice's default account.
    cli.cluster.hold("bob", "-A", "clive", "--mem=300G", "-c2")

    made = cli.run("init")
    assert (made.rc, made.out) == (0, "")
    # It says what to run next.
    next_ = re.search(
        r"(?m)^next: sbatch-router (check --live); sbatch-router (install-shim)", made.err
    )
    assert next_, made.err

    checked = cli.run(*next_[1].split())
    assert (checked.rc, checked.err) == (0, "")
    assert re.fullmatch(rf"{re.escape(str(path))}: ok \(\d accounts, 2 rules\)\n", checked.out)

    explained = cli.run("explain", "--", "--mem=64G", "-c4")
    assert (explained.rc, explained.err) == (0, "")
    where = re.match(r"sbatch submits this to ([\w-]+)/[\w-]+, not to clive", explained.out)
    assert where, explained.out
    assert re.search(r"(?m)^  clive/clive +full: others hold it \[QOSGrpMemLimit\]", explained.out)
    as_data: Any = json.loads(cli.run("explain", "--json", "--", "--mem=64G", "-c4").out)
    assert as_data["account"] == where[1]

    shim = cli.run(next_[2], str(home / "newcomer"))
    assert shim.rc == 0
    script = f"{shim.out}\nexec sbatch --mem=64G -c4 --wrap 'sleep 300'"
    done = cli.run("-c", script, program="/bin/bash")
    assert done.rc == 0, done
    job = done.out.split()[-1]
    assert done.err == (
        f"sbatch-router: submitted to {where[1]}/{as_data['qos']}: mem 64G of 625G free, "
        "cpu 4 of 160 free (rule 'everything else')\n"
    )
    shown = cli.cluster.run("scontrol", "-o", "show", "job", job).stdout
    assert f" Account={where[1]} " in shown
    assert cli.cluster.wait_reason(job)[0] == "RUNNING"

    doctor = cli.run("-c", f"{shim.out}\nexec sbatch-router doctor", program="/bin/bash")
    assert (doctor.rc, doctor.err) == (0, "")
    assert doctor.out.endswith("all is well\n"), doctor.out
    history = cli.run("history")
    assert f"{job}  sent to {where[1]}/{as_data['qos']} *  started after " in history.out
    assert shlex.split(shim.out)[0] == "export"
