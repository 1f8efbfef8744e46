#!/usr/bin/env bash
# The steps of `make check` (fast), `make test` (all) and `make coverage`: each is announced, timed and counted.
#   deploy/check.sh BIN fast|all|coverage
# Steps run side by side where they leave each other room. What each printed is kept in out/test/NAME.txt and shown when it
# ends; until then a line a minute says how far they are. out/test/summary.txt has the summary and the ten slowest tests of
# each step.
set -uo pipefail

bin="$1"
what="$2"
# Compiled modules are kept: without them every process of every fleet compiles our modules again, and each worker of each
# stage rewrites the assertions of every test file, which takes longer than importing all of it.
unset PYTHONDONTWRITEBYTECODE
workers=$(($(nproc) < 4 ? $(nproc) + 1 : 4)) # one more than cores: a third of a test is waiting for a thread or the disk
kept=out/test
failed=()
culprits=() # tests that failed, with their reasons: where only the end of the output is kept, it must name them
summary=()
declare -A running=() # process -> name of the step
declare -A since=()   # name -> when it began
said=$SECONDS

rm -rf "$kept"
mkdir -p "$kept"
stop() { # as from the keyboard first: that is what tests stop their fleets for
    local pid
    for pid in "${!running[@]}"; do kill -INT -- "-$pid"; done
    for pid in {1..50}; do [ -z "$(jobs -pr)" ] || sleep 0.2; done
    for pid in "${!running[@]}"; do kill -KILL -- "-$pid" 2>/dev/null; done
    exit 130
}
trap stop INT TERM

begin() { # begin NAME COMMAND...: it runs beside the others
    local name="$1"
    shift
    printf '== %s: %s\n' "$name" "$*"
    set -m # a group of its own: what is told to end takes its fleets with it
    "$@" >"$kept/$name.txt" 2>&1 </dev/null &
    running[$!]=$name
    set +m
    since[$name]=$SECONDS
}

ended() { # ended NAME STATUS: show and count what it printed
    local name="$1" status="$2" output="$kept/$1.txt" counted
    printf '== %s has ended\n' "$name"
    cat "$output"
    counted=$(grep -E '[0-9]+ (passed|failed|errors?|skipped)|Success: no issues|All checks passed|files already formatted|Contracts: |^RESULT|^sim:' "$output" | tail -n 1)
    mapfile -t -O "${#culprits[@]}" culprits < <(grep -E '^(FAILED|ERROR|again:) ' "$output" | cut -c -400)
    summary+=("$(printf '%-14s %5d s  %-4s  %s' "$name" "$((SECONDS - since[$name]))" "$([ "$status" = 0 ] && echo ok || echo FAIL)" "$counted")")
    [ "$status" = 0 ] || failed+=("$name")
}

settle() { # settle [NAME...]: until these, or all, have ended
    local pid status waiting
    while :; do
        waiting=0
        for pid in "${!running[@]}"; do
            if ! kill -0 "$pid" 2>/dev/null; then
                wait "$pid"
                status=$?
                ended "${running[$pid]}" "$status"
                unset "running[$pid]"
            elif [ "$#" = 0 ] || [[ " $* " = *" ${running[$pid]} "* ]]; then
                waiting=1
            fi
        done
        [ "$waiting" = 1 ] || return 0
        if [ "$((SECONDS - said))" -ge 60 ]; then
            said=$SECONDS
            for pid in "${!running[@]}"; do
                printf '.. %d s  %s: %s\n' "$SECONDS" "${running[$pid]}" "$(tail -n 1 "$kept/${running[$pid]}.txt" | tail -c 100)"
            done
        fi
        sleep 0.2
    done
}

# Fast tests sync thousands of small files, and prove nothing of this disk: they are in memory where 4 GiB of it are free (they take 2).
memory=()
if [ -w /dev/shm ] && [ "$(df --output=avail -k /dev/shm | tail -n 1)" -gt 4194304 ]; then
    in_memory=$(mktemp -d /dev/shm/rollcall-check-XXXXXX)
    memory=(--basetemp "$in_memory/tests")
    trap 'rm -rf "$in_memory"' EXIT
fi

pytest=("$bin/python" -m pytest -q -p no:cacheprovider --durations 10) # a zero fails: its own status 5

fast() {
    # Types begin beside the tests, which take every core that is there; lint comes with the first that is done.
    begin types "$bin/mypy"
    begin lint "$bin/ruff" check .
    begin format "$bin/ruff" format --check .
    # The one file that needs schemathesis is slow altogether; to import it would cost each of these processes a second.
    local unit=(--ignore tests/property/test_rest_schema.py
        -m 'not slow and not cluster and not spark' tests/unit tests/property tests/sim)
    if ! compgen -G 'tests/unit/__pycache__/*-pytest-*.pyc' >/dev/null; then
        # A fresh checkout: each worker would rewrite the assertions of every test file, all of them at the same time.
        begin collect "${pytest[@]}" -qq --collect-only "${unit[@]}"
        settle collect
    fi
    begin unit "${pytest[@]}" -n "$workers" --dist loadgroup ${memory[@]+"${memory[@]}"} "${unit[@]}"
    begin arrows "$bin/lint-imports"
    settle
    [ "${#memory[@]}" = 0 ] || rm -rf "$in_memory" # what follows needs the memory
}

all() {
    local slow
    fast
    # Fleets of different files hardly feel each other: they mostly wait for their own deadlines. What computes goes beside
    # them, and is told to be nice, so that no fleet waits for it.
    begin cluster "${pytest[@]}" -n "$workers" --dist loadfile -m '(cluster or not spark) and not prove' tests/cluster tests/blackbox tests/spark
    begin sim nice -n 10 "$bin/python" -m tests.sim --seeds "${SEEDS:-16}"
    settle sim
    begin pages nice -n 10 "${pytest[@]}" -n 2 --dist loadfile tests/interop tests/scenario tests/docs
    settle pages
    # Of 250 files the 50 with such tests: to import the others takes each worker as long as some of the tests.
    mapfile -t slow < <(grep -rl --include='test_*.py' 'mark\.slow' tests/unit tests/property tests/sim)
    begin slow nice -n 10 "${pytest[@]}" -n "$workers" -m 'slow and not cluster and not spark and not prove' "${slow[@]}"
    settle cluster
    # A test file keeps one core busy, with a Java of its own. Programs that start a Java need no second compiler for a minute.
    # Its code does not fit into what Java keeps for one compiler alone (tests/spark/conftest.py).
    export SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
    begin spark "${pytest[@]}" -n 2 --dist loadfile -m 'spark and not cluster and not prove' tests/spark
    settle
}

coverage() {
    local data
    data=$(mktemp -d)
    export COVERAGE_FILE="$data/coverage"
    begin run "$bin/coverage" run --branch \
        --include '*/controller/core/*,*/broker/core/*,*/epoch/*,*/ha/*' -m pytest -q -p no:cacheprovider -m 'not cluster and not spark' tests/unit tests/property
    settle
    begin report "$bin/coverage" report --show-missing --skip-empty
    settle
    rm -rf "$data"
}

case "$what" in
    fast | all | coverage) "$what" ;;
    *) echo "usage: deploy/check.sh BIN fast|all|coverage" >&2; exit 2 ;;
esac

slowest() { # the ten slowest tests of each step, as pytest found them
    local output
    for output in "$kept"/*.txt; do
        grep -qE '^[0-9.]+s (call|setup|teardown)' "$output" || continue
        printf '\n== slowest: %s\n' "$(basename "$output" .txt)"
        grep -E '^[0-9.]+s (call|setup|teardown)' "$output"
    done
}

{
    printf '\n== summary\n'
    printf '%s\n' "${summary[@]}"
    printf '%-14s %5d s\n' total "$SECONDS"
    if [ "${#failed[@]}" != 0 ]; then
        printf '%s\n' "${culprits[@]:0:20}"
        printf 'FAILED: %s\n' "${failed[*]}"
    fi
} | tee "$kept/summary"
slowest >>"$kept/summary"
mv "$kept/summary" "$kept/summary.txt"
[ "${#failed[@]}" = 0 ]
