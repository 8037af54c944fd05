#!/bin/sh
# Creates .venv with the first Python that can build fastplan: $PYTHON, else python3, else a named newer version.
# What is missing on the machine is one sentence.
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "fastplan: $1" >&2
    exit 1
}

python=
for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11) or sys.implementation.name != "cpython")' >/dev/null 2>&1; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    found=$("${PYTHON:-python3}" --version 2>/dev/null) || found=none
    fail "CPython 3.11 or newer is needed (found: $found); install it, or name another one with make PYTHON=…"
fi

"$python" -c 'import ensurepip, venv' >/dev/null 2>&1 ||
    fail "$python has no venv module: install it (Debian and Ubuntu: apt-get install python3-venv)"
"$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
    fail "$python has no header files (Python.h): install them (Debian and Ubuntu: apt-get install python3-dev)"
compiler=${CC:-$("$python" -c 'import sysconfig; print((sysconfig.get_config_var("CC") or "cc").split()[0])')}
command -v "${compiler%% *}" >/dev/null 2>&1 ||
    fail "no C compiler (${compiler%% *}): install one (Debian and Ubuntu: apt-get install gcc), or name one with CC=…"

"$python" -m venv --clear .venv
