#!/usr/bin/env python3
"""Write docs/captures.md anew: what the commands print, on a real cluster, at 80 columns.

As root, with a Python that every user can run and that has sbatch-router installed:

    /path/to/venv/bin/python docs/make_captures.py
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Optional

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "containers"))

from slurmbed import Cluster  # noqa: E402

POLICY = """\
version: 1
accounts: [clive, maigan]
blocked:
  - account: brusko
    reason: throttled to 1 GPU and full since March; the PI asked us to stay off
    since: 2026-03-02
    review: 2027-12-31
rules:
  - name: long jobs stay at home
    when: {time: ">2d"}
    candidates: clive
  - name: gpu jobs
    when: {gpus: ">0"}
    order: [gpu, mem]
cache: 0
"""

HEAD = """\
# What it looks like

Made by `docs/make_captures.py` on a real Slurm {release} with the accounts of
`containers/specs/seed.json`, at 80 columns. On a terminal the bars have colours; `--ascii`,
`NO_COLOR` and output that is no terminal are respected.
"""


class Captures:
    """Runs commands as alice and keeps what they print."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.text = HEAD.format(release=".".join(f"{n:02d}" for n in cluster.release))
        self.bin = cluster.home("alice") / "bin"
        self.tools = Path(sys.executable).parent

    def run(self, command: str, title: str = "", words: str = "", columns: int = 80) -> None:
        """Run a shell command as alice; with a title, show it and its output."""
        env = {
            "PATH": f"{self.bin}:{self.tools}:{self.cluster.env['PATH']}",
            "COLUMNS": str(columns),
            "XDG_RUNTIME_DIR": str(self.cluster.home("alice") / ".run"),
        }
        done = self.cluster.run_as(
            "alice", ["/bin/sh", "-c", f"exec 2>&1; {command}"], env=env, check=False
        )
        if not title:
            if done.returncode:
                sys.exit(f"{command}: {done.stdout}")
            return
        said = done.stdout.replace(str(self.cluster.home("alice")), "~").rstrip("\n")
        status = f"\n$ echo $?\n{done.returncode}" if done.returncode else ""
        self.text += f"\n## {title}\n\n{words}\n\n```console\n$ {command}\n{said}{status}\n```\n"

    def write(self, name: str, text: str) -> None:
        """A file in alice's home."""
        quoted = shlex.quote(text)
        self.run(f'mkdir -p "$(dirname {name})" && printf %s {quoted} > {name}')

    def make(self) -> str:
        """All of them, in the order of a first day."""
        self.run("mkdir -m 700 .run")
        self.run(f"sbatch-router install-shim {self.bin}")
        self.write(".config/sbatch-router/policy.yaml", POLICY)
        self.write(
            "decon.sh", "#!/bin/sh\n#SBATCH --gres=gpu:1 --cpus-per-task=8 --mem=125G\nsleep 600\n"
        )
        self.cluster.hold("bob", "-A", "clive", "--mem=250G", "-c16")
        self.cluster.hold("alice", "-A", "clive", "--mem=12500M", "-c2")
        self.cluster.hold("carol", "-A", "maigan", "--mem=100G", "-c24", "--gres=gpu:1")
        self.run(
            "sbatch-router explain decon.sh",
            "explain",
            "bob has filled clive, alice's default account. Where would her job go, and why?",
        )
        self.run(
            "sbatch-router explain --ascii decon.sh",
            "explain, in 60 columns of ASCII",
            "For a narrow pane, or a terminal without the characters.",
            columns=60,
        )
        self.run("sbatch decon.sh", "sbatch", "The job itself: one line more than usual.")
        self.cluster.wait_until(self._runs, what="decon runs")
        job = self._submit("sbatch --parsable -A clive --mem=60G --wrap 'sleep 600'")
        self.cluster.wait_reason(job)
        self.run(
            "sbatch-router status",
            "status",
            "All pools, without a job in mind. `--watch` shows it again every ten seconds.",
        )
        self.cluster.run("scancel", "--user=alice")
        self.cluster.wait_until(self._gone, what="decon ends")
        self.cluster.hold("carol", "-A", "maigan", "--mem=450G", "-c64")
        self.run(
            "sbatch decon.sh",
            "a refusal",
            "Both pools are full now, and the policy says `when_full: refuse` (the default).",
        )
        self.run("sbatch-router history", "history", "What was decided, and what became of it.")
        self.run("sbatch-router check --live")
        limits = {"clive": {"GrpTRES": "cpu=80,mem=160000M,gres/gpu=0"}}
        self.cluster.apply({"qos": limits})
        self.run(
            "sbatch-router check --live",
            "check --live",
            "The site has halved clive's memory and taken its GPU since it was last checked.",
        )
        self.run("sbatch-router doctor", "doctor", "Is everything in place?")
        self.run(
            "sbatch-router init --output -",
            "init",
            "The policy that alice would have begun with.",
        )
        return self.text

    def _submit(self, command: str) -> str:
        env = {"PATH": f"{self.cluster.env['PATH']}"}
        done = self.cluster.run_as("alice", ["/bin/sh", "-c", command], env=env)
        return str(done.stdout.strip())

    def _gone(self) -> bool:
        return not self.cluster.run("squeue", "-h", "-u", "alice").stdout.strip()

    def _runs(self) -> bool:
        done = self.cluster.run("squeue", "-h", "-u", "alice", "-n", "decon.sh", "-o", "%t")
        return bool(done.stdout.strip() == "R")


def main(target: Optional[Path] = None) -> int:
    """Boot a cluster, capture, write."""
    with Cluster.start(ROOT / "containers" / "specs" / "seed.json") as cluster:
        text = Captures(cluster).make()
    (target or ROOT / "docs" / "captures.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
