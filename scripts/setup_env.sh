#!/bin/sh
# Create or repair .venv and install the project there, with the extras that are named as arguments.
#
#   scripts/setup_env.sh [EXTRA...]        PYTHON=python3.12 scripts/setup_env.sh test mooncake
#
# Exits 0 when .venv is ready, 1 when pip failed, 2 when the machine lacks something (the message says what).
#
# .venv/.hicache-bench-state says how far a set-up came. It reads "unfinished" from before the first change until
# after the last one, so an interrupted set-up, however it died, is built anew by the next.
set -eu
cd "$(dirname "$0")/.."
place=$(pwd -P)

# pip answers Ctrl-C with exit code 1, like any failure of its own; only these traps tell the two apart.
trap 'exit 130' INT
trap 'exit 143' HUP TERM

state=.venv/.hicache-bench-state

say() { echo "hicache-bench: $*" >&2; }
fail() { say "$@"; exit 2; }

is_supported() { "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }
version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

choose_python() {
    if [ -n "${PYTHON:-}" ]; then
        is_supported "$PYTHON" && return
        found=$(version_of "$PYTHON") || fail "PYTHON=$PYTHON does not run. Name a Python from 3.10 to 3.13."
        fail "PYTHON=$PYTHON is Python $found; allowed are 3.10 to 3.13, e.g. PYTHON=python3.12 make run"
    fi
    for PYTHON in python3 python3.13 python3.12 python3.11 python3.10; do
        is_supported "$PYTHON" && return
    done
    found=$(version_of python3) && found="python3 is Python $found" || found="there is no python3"
    fail "$found; allowed are 3.10 to 3.13. Install one of them, e.g. python3.12, and run: PYTHON=python3.12 make run"
}

# Debian and Ubuntu split ensurepip off into a package of its own, and `python3 -m venv` needs it.
require_ensurepip() {
    "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null && return
    package=python$(version_of "$PYTHON")-venv
    command -v apt-get >/dev/null || fail "$PYTHON has no ensurepip. Install its venv module, then run this again."
    install="apt-get install -y $package"
    if [ "$(id -u)" -eq 0 ]; then
        say "$PYTHON has no ensurepip; installing $package"
        { apt-get update && DEBIAN_FRONTEND=noninteractive $install; } >&2 || true
    fi
    "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null && return
    if command -v sudo >/dev/null; then install="sudo $install"; else install="su -c '$install'"; fi
    fail "$PYTHON has no ensurepip. Run: $install"
}

# Everything that an editable install depends on; a change to any of it installs again.
fingerprint() { cat pyproject.toml hicache_bench/__init__.py scripts/setup_env.sh | cksum; }

# The scripts in .venv/bin start with absolute paths, so a moved or copied .venv is not one.
venv_is_usable() {
    [ ! -e "$state" ] || [ "$(head -n 1 "$state")" = "$place" ] || return 1
    is_supported .venv/bin/python && .venv/bin/python -c 'import pip' 2>/dev/null || return 1
    [ -z "${PYTHON:-}" ] || [ "$(version_of .venv/bin/python)" = "$(version_of "$PYTHON")" ]
}

has_all_extras() {
    [ -e "$state" ] && [ "$(sed -n 2p "$state")" = "$(fingerprint)" ] || return 1
    for extra in "$@"; do
        sed 1,2d "$state" | grep -qx "$extra" || return 1
    done
}

create_venv() {
    choose_python
    require_ensurepip
    if [ -e .venv ]; then
        [ -e "$state" ] || [ -e .venv/pyvenv.cfg ] || [ -z "$(ls -A .venv)" ] ||
            fail ".venv is there and is not a virtual environment. Move it away, then run this again."
        say ".venv is unfinished, broken, moved or of another Python; building it anew"
    fi
    mkdir -p .venv
    echo unfinished >"$state"
    find .venv/ -mindepth 1 -maxdepth 1 ! -path "*/${state##*/}" -exec rm -rf {} +
    "$PYTHON" -m venv .venv
}

install() {
    extras=$({ printf '%s\n' "$@"; [ ! -e "$state" ] || sed 1,2d "$state"; } | sed '/^$/d' | sort -u)
    before=$(cat "$state" 2>/dev/null) || before=
    echo unfinished >"$state"
    say "installing into .venv (about a minute the first time)"
    target=.${extras:+[$(echo "$extras" | paste -sd, -)]}
    status=0
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable "$target" >&2 || status=$?
    if [ "$status" -ne 0 ]; then
        # pip rolls back what fails, so that the old state still holds; a killed pip (above 128) does not.
        if [ "$status" -lt 128 ]; then echo "$before" >"$state"; fi
        say "pip could not install $target; its message is above"
        exit 1
    fi
    printf '%s\n' "$place" "$(fingerprint)" "$extras" >"$state.new"
    mv "$state.new" "$state"
}

venv_is_usable || create_venv
has_all_extras "$@" || install "$@"
