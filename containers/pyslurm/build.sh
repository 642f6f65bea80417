#!/bin/sh
# Builds pyslurm for Slurm 26.05 and installs it beside PYTHON's other packages.
#
#   build.sh PYTHON
#
# No pyslurm follows 26.05 yet. The newest one, for 25.11, compiles against it with the header
# beside this script. A real site installs the release that matches its Slurm: docs/pyslurm.md.
# Needs a C compiler, Python's headers and libslurm-dev; pip's index is the machine's own.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
python=${1:?usage: build.sh PYTHON}

# The release this was made for: another one needs another look at the header.
version=25.11.2
sha256=6e0e4bc639ea3177591b102b77c1dd8df55a9e411ac42ef339a4adb3908cca34
# The last series pyslurm 25.11 was released with; Cython's C differs between series.
cython=3.2.9

fail() {
    echo "pyslurm/build.sh: $*" >&2
    exit 1
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
pip="$python -m pip --disable-pip-version-check -q"

# In an environment of its own: what builds pyslurm is no part of what is tested.
"$python" -m venv build
build=build/bin/python
$pip --python "$build" install setuptools wheel packaging "Cython==$cython" ||
    fail "cannot install Cython $cython: which versions does the index have now?"

# Metadata comes from setup.py, which asks for nothing of Slurm at that point.
$pip --python "$build" download --no-deps --no-binary :all: --no-build-isolation \
    "pyslurm==$version" || fail "cannot get pyslurm $version's source"
echo "$sha256  pyslurm-$version.tar.gz" | sha256sum -c --status ||
    fail "pyslurm-$version.tar.gz is not the file this was written for"
tar -xzf "pyslurm-$version.tar.gz"
cd "pyslurm-$version"

found=$(sed -n 's/^#define SLURM_VERSION_NUMBER *//p' /usr/include/slurm/slurm_version.h)
case $found in
0x1a05*) ;;
*) fail "made for Slurm 26.05, found $found (0x1a05.. is 26.05): the suite has moved on" ;;
esac

# setup.py refuses to build when its own version is not Slurm's; what follows "+" says what the
# code really is.
sed -i "s/^__version__ = .*/__version__ = \"26.5.0+pyslurm$version\"/" pyslurm/version.py

# SLURM_LIB_DIR: Debian keeps libslurmfull.so, which setup.py looks for in /usr/lib64, here.
# -w: Cython's C for the old functions warns hundreds of times.
# -O1 -g0: a third of the build time of Python's own -g -O2; what is measured is RPCs and sockets.
SLURM_LIB_DIR=$(dirname "$(find /usr/lib -name libslurmfull.so | head -1)")
[ -e "$SLURM_LIB_DIR/libslurmfull.so" ] || fail "no libslurmfull.so under /usr/lib"
CFLAGS="-w -O1 -g0 -include $here/slurm-26.05-compat.h"
PYSLURM_BUILD_JOBS=$(nproc)
export SLURM_LIB_DIR CFLAGS PYSLURM_BUILD_JOBS
# The command first: setup.py builds nothing when an option comes before it.
"$scratch/$build" setup.py build_ext -j "$PYSLURM_BUILD_JOBS" bdist_wheel --dist-dir "$scratch/wheels" >"$scratch/log" 2>&1 || {
    tail -60 "$scratch/log" >&2
    fail "pyslurm $version does not compile against Slurm $found"
}
$pip install --no-deps --no-index "$scratch"/wheels/*.whl
# Importing it would end this process, as there is no slurm.conf yet. -I: not the sources here.
"$python" -I -c '
from importlib.metadata import distribution
made = distribution("pyslurm")
names = [str(path) for path in made.files if path.suffix == ".so"]
assert any("core/job" in name for name in names), "no extension modules were built"
print("pyslurm", made.version, len(names), "extension modules")'
