#!/usr/bin/env bash
# The steps of `make check` (fast), `make test` (all) and `make coverage`: each is announced, timed and counted.
#   deploy/check.sh BIN fast|all|coverage
set -uo pipefail

bin="$1"
what="$2"
# Compiled modules are kept: without them every process of every fleet compiles our modules again, and each worker of each
# stage rewrites the assertions of every test file, which takes longer than importing all of it.
unset PYTHONDONTWRITEBYTECODE
workers=$(($(nproc) < 4 ? $(nproc) + 1 : 4)) # one more than cores: a third of a test is waiting for a thread or the disk
failed=()
culprits=() # tests that failed, with their reasons: where only the end of the output is kept, it must name them
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
    mapfile -t -O "${#culprits[@]}" culprits < <(grep -E '^(FAILED|ERROR) ' "$output" | cut -c -400)
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
    # The one file that needs schemathesis is slow altogether; its plugin alone would cost each of these processes a second.
    tests unit -n "$workers" --dist loadgroup -p no:schemathesis --ignore tests/property/test_rest_schema.py \
        -m 'not slow and not cluster and not spark' tests/unit tests/property
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
    tests slow -n "$workers" -m 'slow and not cluster and not spark' tests/unit tests/property
    tests interop tests/interop
    tests scenario tests/scenario
    step sim "$bin/python" -m tests.sim --seeds "${SEEDS:-100}"
    tests docs -n 2 --dist loadfile tests/docs
    # Programs that start a Java need no second compiler for a minute.
    export SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1"
    # A fleet mostly waits for its own deadlines: two of them, of two files, hardly feel each other. Those with Spark too.
    tests cluster -n 2 --dist loadfile -m 'cluster or not spark' tests/cluster tests/blackbox tests/spark
    # A test file keeps one core busy, with a Java of its own.
    tests spark -n 2 --dist loadfile -m 'spark and not cluster' tests/spark
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
    printf '%s\n' "${culprits[@]:0:20}"
    printf 'FAILED: %s\n' "${failed[*]}"
    exit 1
fi
