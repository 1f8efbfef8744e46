#!/usr/bin/env bash
# Try every supported Python that is installed here: install from the lock, run a fleet, run the unit tests that need no Spark.
#   deploy/pythons.sh [VERSION...]     by default 3.12 3.13; 3.11 is what everything else runs on
# A Python that is not here is counted as skipped; the exit code is 1 only if one that is here failed.
set -uo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=()
failed=()
skipped=()

find_python() { # find_python VERSION: its path, from the search path or from pyenv
    local candidate
    for candidate in "$(command -v "python$1")" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        # A shim of pyenv is there for each version, and fails for one that is not chosen.
        "$candidate" -c 'import venv' 2>/dev/null && printf '%s\n' "$candidate" && return 0
    done
    return 1
}

play() { # play DIRECTORY BIN: a fleet from its first command to its last
    local status=0
    mkdir -p "$1" && cd "$1" || return 1
    "$2/rollcall" demo up >up.txt 2>&1 && "$2/rollcall" status || status=$?
    "$2/rollcall" demo down || status=$?
    [ "$status" = 0 ] || cat up.txt
    return "$status"
}

try() { # try VERSION PYTHON
    local venv="$work/$1"
    (cd "$top" && PYTHON="$2" deploy/setup.sh venv "$venv" server test) || return 1
    (play "$work/fleet-$1" "$venv/bin") || return 1
    # Left out: what imports Spark, and what looks at the checkout with the tools of the extra dev.
    (cd "$top" && "$venv/bin/python" -m pytest -q -p no:cacheprovider -n logical --maxprocesses 4 \
        -m 'not slow and not cluster and not spark' tests/unit \
        --ignore-glob='*/test_analytics_*' --ignore-glob='*/test_report_*' --ignore-glob='*/test_local_analytics_*' \
        --ignore-glob='*/test_packaging.py' --ignore-glob='*/test_tidy.py')
}

versions=("$@")
[ "${#versions[@]}" -gt 0 ] || versions=(3.12 3.13)
for version in "${versions[@]}"; do
    if ! python=$(find_python "$version"); then
        printf 'pythons: no python%s here, skipped\n' "$version"
        skipped+=("$version")
    elif try "$version" "$python"; then
        passed+=("$version")
    else
        failed+=("$version")
    fi
done
printf 'RESULT pythons: %d passed (%s), %d failed (%s), %d skipped (%s)\n' \
    "${#passed[@]}" "${passed[*]}" "${#failed[@]}" "${failed[*]}" "${#skipped[@]}" "${skipped[*]}"
[ "${#failed[@]}" = 0 ]
