#!/bin/sh
# Rewrites requirements/*.txt: exact versions with hashes, one set of files for CPython 3.11 to 3.14 on Linux and macOS.
# runtime ⊂ test ⊂ dev, and build ⊂ test; the smaller locks take their versions from dev. Pass --upgrade to take newer ones.
set -eu
cd "$(dirname "$0")/.."

tools=build/lock-tools
[ -x "$tools/bin/uv" ] || { .venv/bin/python -m venv "$tools" && "$tools/bin/python" -m pip install --quiet uv; }

lock() {
    output=$1
    shift
    "$tools/bin/uv" pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-header --no-annotate --output-file "requirements/$output.txt" "$@"
}

lock dev pyproject.toml --group dev "$@"
lock test pyproject.toml --group test --constraint requirements/dev.txt
lock runtime pyproject.toml --constraint requirements/dev.txt
lock build --group build --constraint requirements/dev.txt
