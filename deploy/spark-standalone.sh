#!/usr/bin/env bash
# A Spark standalone cluster on this machine: a master and two workers on loopback, for one analytics job.
#   deploy/spark-standalone.sh run PATH... --lake FOLDER       the arguments of `rollcall analytics`
# Ports are the system's choice. Everything is stopped by its pid when the job ends, or when this script is told to end
# (Ctrl-C, SIGTERM); logs stay only if something failed. Exit code: the job's.
# WORKERS=2 CORES=1 MEMORY=512m set the size, SPARK_DAEMON_MEMORY=256m that of master and workers themselves;
# SETTINGS=FILE holds more lines of a spark-defaults.conf.
set -euo pipefail

here="$(cd "$(dirname "$0")/.." && pwd)"
python="$here/.venv/bin/python"
[ -x "$python" ] || python=python3
workers="${WORKERS:-2}" cores="${CORES:-1}" memory="${MEMORY:-512m}"
[ "$#" -gt 0 ] || { sed -n '2,7p' "$0" >&2; exit 2; }

spark="$("$python" -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)')" || {
    echo "spark-standalone: pyspark is not installed; install the extra: pip install 'rollcall-ha[analytics]'" >&2
    exit 2
}
command -v "${JAVA_HOME:+$JAVA_HOME/bin/}java" >/dev/null || {
    echo "spark-standalone: no java; Spark needs 17 or newer: apt-get install openjdk-17-jre-headless" >&2
    exit 2
}

work="$(mktemp -d)"
pids=()
stop() {
    local status=$?
    [ "${#pids[@]}" = 0 ] || kill "${pids[@]}" 2>/dev/null || true
    [ "${#pids[@]}" = 0 ] || wait "${pids[@]}" 2>/dev/null || true
    if [ "$status" = 0 ]; then rm -rf "$work"; else echo "spark-standalone: logs are in $work" >&2; fi
    exit "$status"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

export SPARK_HOME="$spark" SPARK_LOCAL_IP=127.0.0.1 SPARK_DAEMON_MEMORY="${SPARK_DAEMON_MEMORY:-256m}"
export SPARK_CONF_DIR="$work/conf" SPARK_NO_DAEMONIZE=1 PYSPARK_PYTHON="$python" PYTHONPATH="$here"
mkdir "$SPARK_CONF_DIR"
printf 'spark.executor.memory %s\nspark.ui.enabled false\n' "$memory" >"$SPARK_CONF_DIR/spark-defaults.conf"
[ -z "${SETTINGS:-}" ] || cat "$SETTINGS" >>"$SPARK_CONF_DIR/spark-defaults.conf"

wait_for() { # wait_for FILE PATTERN: its first match, or the end of the file after a minute
    for _ in $(seq 600); do
        if grep -o -m 1 -E "$2" "$1" 2>/dev/null; then return 0; fi
        sleep 0.1
    done
    tail -n 20 "$1" >&2
    return 1
}

# spark-class execs: its pid is the Java process.
"$spark/bin/spark-class" org.apache.spark.deploy.master.Master --host 127.0.0.1 --port 0 --webui-port 0 >"$work/master.log" 2>&1 &
pids+=($!)
url="$(wait_for "$work/master.log" 'spark://127\.0\.0\.1:[0-9]+')"
for number in $(seq "$workers"); do
    "$spark/bin/spark-class" org.apache.spark.deploy.worker.Worker --host 127.0.0.1 --webui-port 0 --cores "$cores" \
        --memory "$memory" --work-dir "$work/worker-$number" "$url" >"$work/worker-$number.log" 2>&1 &
    pids+=($!)
done
for number in $(seq "$workers"); do
    wait_for "$work/worker-$number.log" 'Successfully registered with master' >/dev/null
done
echo "$url with $workers workers of $cores cores and $memory" >&2

job="$1"
shift
# In the background: bash acts on a signal only when what it waits for in front has ended.
"$python" -m rollcall_ha.analytics.cli "$job" "$@" --master "$url" &
pids+=($!)
wait "$!"
