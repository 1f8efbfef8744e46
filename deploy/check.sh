#!/usr/bin/env bash
# The steps of `make check` (fast), `make test` (all) and `make coverage`: each is announced, timed and counted.
#   deploy/check.sh BIN fast|all|coverage
set -uo pipefail

bin="$1"
what="$2"
failed=()
began=$SECONDS
summary=()

step() { # step NAME COMMAND...
    local name="$1" from=$SECONDS output status printer
    shift
    printf '== %s: %s\n' "$name" "$*"
    output=$(mktemp)
    # By "exec", in this shell: a redirection of the command itself is made in its own process, and $! here stays what it was.
    exec 3> >(tee "$output")
    printer=$!
    "$@" >&3 2>&1 3>&-
    status=$?
    exec 3>&-
    wait "$printer" # the lines that are counted below must be there
    local counted
    counted=$(grep -E '[0-9]+ (passed|failed|errors?|skipped)|Success: no issues|All checks passed|files already formatted|Contracts: |^RESULT|^sim:' "$output" | tail -n 1)
    rm -f "$output"
    summary+=("$(printf '%-14s %5d s  %-4s  %s' "$name" "$((SECONDS - from))" "$([ "$status" = 0 ] && echo ok || echo FAIL)" "$counted")")
    [ "$status" = 0 ] || failed+=("$name")
}

tests() { # tests NAME ARGUMENTS...: pytest, and a zero fails (pytest's own status 5)
    local name="$1"
    shift
    step "$name" "$bin/python" -m pytest -q -p no:cacheprovider "$@"
}

fast() {
    # Types begin beside the tests, which take every core that is there; lint comes with the first that is done.
    local types
    types=$(mktemp)
    "$bin/mypy" >"$types" 2>&1 &
    local checker=$!
    tests unit -n logical --maxprocesses 4 --dist loadgroup -m 'not slow and not cluster and not spark' tests/unit tests/property
    step types report "$checker" "$types"
    rm -f "$types"
    step lint "$bin/ruff" check .
    step format "$bin/ruff" format --check .
    step arrows "$bin/lint-imports"
}

report() { # report PID FILE: the end of a job that began earlier, with what it printed
    local status=0
    wait "$1" || status=$?
    cat "$2"
    return "$status"
}

all() {
    fast
    tests slow -n logical --maxprocesses 4 -m 'slow and not cluster and not spark' tests/unit tests/property
    tests interop tests/interop
    tests scenario tests/scenario
    step sim "$bin/python" -m tests.sim --seeds "${SEEDS:-100}"
    tests docs tests/docs
    tests cluster tests/cluster tests/blackbox
    # A test file keeps one core busy, with a Java of its own; programs that they start need no second compiler for a minute.
    export SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1"
    tests spark -n 2 --dist loadfile -m 'spark and not cluster' tests/spark
    tests spark-cluster -m 'spark and cluster' tests/spark
}

coverage() {
    local data
    data=$(mktemp -d)
    export COVERAGE_FILE="$data/coverage"
    step run "$bin/coverage" run --branch \
        --include '*/controller/core/*,*/broker/core/*,*/epoch/*,*/ha/*' -m pytest -q -p no:cacheprovider -m 'not cluster and not spark' tests/unit tests/property
    step report "$bin/coverage" report --show-missing --skip-empty
    rm -rf "$data"
}

case "$what" in
    fast | all | coverage) "$what" ;;
    *) echo "usage: deploy/check.sh BIN fast|all|coverage" >&2; exit 2 ;;
esac

printf '\n== summary\n'
printf '%s\n' "${summary[@]}"
printf '%-14s %5d s\n' total "$((SECONDS - began))"
if [ "${#failed[@]}" != 0 ]; then
    printf 'FAILED: %s\n' "${failed[*]}"
    exit 1
fi
