"""Fixtures that several test packages share.

`tests/run` installs the package before it calls pytest; `pytest` alone tests whatever
`sbatch_router` it can import, and refuses to when that is not this checkout's code.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "containers"))

#: Accounts clive and maigan for everybody, brusko blocked: the seed's lab.
SEED_POLICY = """\
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
cache: 0
"""


def pytest_configure(config):
    config.addinivalue_line("markers", "cluster: needs a real Slurm cluster (root, Slurm packages)")
    config.addinivalue_line("markers", "alone: measures time, and so runs by itself (tests/run)")
    config.addinivalue_line("markers", "slow: left out of the quick set (containers/inside)")
    # tests/run has just installed it.
    stale = [] if os.environ.get("SBATCH_ROUTER_TESTS_RUN") else _stale_modules()
    if stale:
        raise pytest.UsageError(
            f"the sbatch_router that Python finds is not this checkout's ({stale[0]} differs): "
            "use tests/run"
        )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A test that fails beside a cluster shows what that cluster looks like."""
    report = (yield).get_result()
    if report.failed and "slurmbed" in sys.modules:
        for one in sys.modules["slurmbed"].Cluster.running:
            try:
                text = one.describe()
            except Exception as error:  # the test's own failure is what must be told
                text = f"cannot be described: {error!r}"
            report.sections.append((f"the cluster in {one.directory}", text))


def _stale_modules():
    """Modules of the installed package that differ from the checkout."""
    import sbatch_router

    installed = Path(sbatch_router.__file__).parent
    tree = ROOT / "sbatch_router"
    if installed == tree:
        return []
    names = [path.relative_to(tree) for path in sorted(tree.rglob("*.py"))]
    return [n for n in names if _bytes(installed / n) != _bytes(tree / n)]


def _bytes(path):
    return path.read_bytes() if path.exists() else None


@pytest.fixture(scope="session")
def cluster():
    """A real cluster with the seed's accounts; ends with the session."""
    if os.geteuid() != 0:
        pytest.skip("a Slurm cluster needs root: run tests/run as root")
    from cluster import Cluster

    with Cluster.start(ROOT / "containers" / "specs" / "seed.json") as started:
        yield started


@pytest.fixture(scope="session")
def shim_dir(cluster):
    """A directory with the installed shim, which the cluster's users can run."""
    from sbatch_router import shimfile

    directory = cluster.directory / "shim"
    shimfile.install(directory)
    done = cluster.run_as("alice", [directory / "sbatch", "--version"], check=False)
    if done.returncode or done.stderr:
        pytest.fail(f"users cannot run the shim ({done.stderr.strip()}): use tests/run")
    return directory


@pytest.fixture
def policy_file(cluster):
    """A function that writes a policy every user can read, and returns its path."""

    def write(text=SEED_POLICY, name="policy.yaml"):
        path = cluster.directory / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)
        return path

    return write


@pytest.fixture
def run_dir(cluster):
    """A function: a user's private directory for XDG_RUNTIME_DIR, where the router's state is.

    Without it the state is in /tmp, where it outlives the cluster.
    """

    def make(user):
        path = cluster.directory / "run" / user
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.chmod(0o755)
        os.chown(path, cluster.uid(user), -1)
        return path

    return make


@pytest.fixture
def clean(cluster):
    """Before and after the test: no jobs, no router state, no log, no policy of a user's own."""
    _clean(cluster)
    yield
    _clean(cluster)


def _clean(cluster):
    cluster.scancel_all()
    shutil.rmtree(cluster.directory / "run", ignore_errors=True)
    for user in cluster.spec.users:
        home = cluster.home(user)
        for name in (".config/sbatch-router", ".local/state/sbatch-router"):
            shutil.rmtree(home / name, ignore_errors=True)
