"""The sidecar by itself, as the systemd user unit in docs/examples runs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

UNIT = Path(__file__).resolve().parents[2] / "docs/examples/systemd/sbatch-router-sidecar.service"
COMMAND = "/opt/sbatch-router/bin/sbatch-router-sidecar"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_the_unit_is_one_that_systemd_takes(tmp_path):
    copy = tmp_path / UNIT.name
    # The command must be there, as anywhere but on a site that has installed it it is not.
    copy.write_text(UNIT.read_text().replace(COMMAND, "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(copy)],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    # A key it does not know is a warning and status 0.
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_unit_runs_a_command_line_that_the_sidecar_takes():
    (line,) = re.findall("^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert line == f"{COMMAND} --no-jobs"


@pytest.fixture
def sidecar(tmp_path):
    """A sidecar whose policy is broken, while somebody submits; ends with the test."""
    (tmp_path / "run").mkdir(mode=0o700)
    (tmp_path / "run" / "sbatch-router").mkdir(mode=0o700)
    (tmp_path / "run" / "sbatch-router" / "ledger").touch()
    (tmp_path / "policy.yaml").write_text("version: 7\n")
    child = subprocess.Popen(
        [sys.executable, "-I", "-c", "from sbatch_router.cli.sidecar import main; exit(main())",
         "--no-jobs"],
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "XDG_RUNTIME_DIR": str(tmp_path / "run"),
            "SBATCH_ROUTER_POLICY": str(tmp_path / "policy.yaml"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    yield child
    child.kill()
    child.communicate()


def test_a_trouble_that_stays_is_logged_once(sidecar, tmp_path):
    log = tmp_path / ".local/state/sbatch-router/sidecar.jsonl"

    def records():
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    deadline = time.monotonic() + 30
    while len(records()) < 2:
        assert time.monotonic() < deadline, records()
        time.sleep(0.1)
    # Two more looks.
    time.sleep(4.5)
    os.kill(sidecar.pid, signal.SIGTERM)
    out, err = sidecar.communicate(timeout=30)
    assert (sidecar.returncode, err) == (0, b"")
    assert re.fullmatch(rb"sbatch-router-sidecar \d+\n", out)
    assert [record["event"] for record in records()] == ["started", "snapshot", "stopped"]
    assert "version" in records()[1]["problem"]
