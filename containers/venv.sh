# Sourced by tests/run and containers/demo, from the top of a checkout.
#
# venv EXTRAS   sets VENV: an environment with what this checkout and its EXTRAS depend on
#               (that of the tests, if it is there), kept between runs under a name that changes
#               with pyproject.toml and Python;
#               and RUN: a small one on top of it that has this checkout's own code installed,
#               made for this run only.
#
# Both are where every user can read them, as a checkout in somebody's home is not.

PYTHON=${PYTHON:-/usr/bin/python3}
unset PYTHONPATH PYTHONHOME PYTHONSAFEPATH VIRTUAL_ENV

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# Run a command quietly; on failure print what it said, and end.
quietly() {
    if ! "$@" >"$RUN.log" 2>&1 </dev/null; then
        cat "$RUN.log" >&2
        fail "failed: $*"
    fi
}

have_python() {
    "$PYTHON" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' 2>/dev/null
}

# Debian's Python comes without venv, and a minimal system without Python.
need_python() {
    have_python && return
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
        fail "needs $PYTHON (3.9 or later) with venv; on Debian: apt-get install python3-venv"
    export DEBIAN_FRONTEND=noninteractive
    quietly apt-get -o DPkg::Lock::Timeout=300 update -qq
    quietly apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends \
        python3 python3-venv ca-certificates
    have_python || fail "$PYTHON is too old, or has no venv"
}

# A directory of our own in a place where others may write.
own_directory() {
    mkdir -m 755 "$1" 2>/dev/null || true
    [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ] &&
        [ -z "$(find "$1" -maxdepth 0 -perm /022)" ] ||
        fail "$1 is not a directory that only you can write; remove it"
}

tidy() {
    rm -rf "$RUN" "$RUN.log" "$RUN.src"
}

venv() {
    umask 022
    cache=/var/tmp/sbatch-router-$(id -u)
    own_directory "$cache"
    RUN=$(mktemp -d "$cache/run-XXXXXX")
    chmod 755 "$RUN"
    trap tidy EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    need_python
    # From a copy: building in the checkout would leave files there, and find old ones.
    mkdir -p "$RUN.src/docs"
    cp -R pyproject.toml README.md LICENSE sbatch_router "$RUN.src"
    cp -R docs/man "$RUN.src/docs"
    for extras in "test,$1" "$1"; do
        key=$({ "$PYTHON" -VV && cat pyproject.toml && echo "$extras"; } | sha256sum | cut -c1-12)
        VENV=$cache/venv-$key
        [ ! -e "$VENV/complete" ] || break
    done
    if [ ! -e "$VENV/complete" ]; then
        echo "$(basename "$0"): installing what is needed into $VENV" >&2
        (
            flock 9
            [ ! -e "$VENV/complete" ] || exit 0
            rm -rf "$VENV"
            quietly "$PYTHON" -m venv "$VENV"
            pip="$VENV/bin/python -m pip --disable-pip-version-check -q"
            quietly $pip install --upgrade setuptools wheel
            quietly $pip install --no-compile "$RUN.src[$1]"
            # With all processors. Some packages hold files that are no Python.
            "$VENV/bin/python" -m compileall -q -j 0 "$VENV/lib" >/dev/null 2>&1 || true
            quietly $pip uninstall -y sbatch-router
            touch "$VENV/complete"
        ) 9>"$VENV.lock" || exit 1
    fi
    quietly "$PYTHON" -m venv --without-pip "$RUN"
    ours=$("$RUN/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    "$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
        >"$ours/dependencies.pth"
    quietly "$VENV/bin/python" -m pip --disable-pip-version-check --python "$RUN/bin/python" \
        install -q --no-deps --no-build-isolation --no-index "$RUN.src"
    PATH=$RUN/bin:$VENV/bin:$PATH
    export PATH
}
