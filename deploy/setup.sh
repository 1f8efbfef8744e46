#!/usr/bin/env bash
# Make the virtual environment, and see to Java and to tools of the network. Idempotent; says what it could not do.
#   deploy/setup.sh venv DIRECTORY EXTRA...    (server for the demo; server analytics dev for everything)
#   deploy/setup.sh java
#   deploy/setup.sh machines
#   deploy/setup.sh interop
#   deploy/setup.sh browser
#   deploy/setup.sh prometheus DIRECTORY
#   deploy/setup.sh field DIRECTORY
set -euo pipefail

python="${PYTHON:-python3}"

say() { printf 'setup: %s\n' "$*"; }

# Install Debian packages where we may; status 1 where we may not or it fails.
install_packages() {
    local root=()
    command -v apt-get >/dev/null || return 1
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null && sudo -n true 2>/dev/null || return 1
        root=(sudo -n)
    fi
    local install=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@")
    "${install[@]}" >/dev/null 2>&1 && return 0
    "${root[@]}" apt-get update >/dev/null 2>&1 && "${install[@]}" >/dev/null 2>&1
}

# Install the part of requirements.lock that these tables of pyproject.toml need: exact versions, by hash, as locked.
install_locked() { # install_locked DIRECTORY OPTION TABLE...
    local directory="$1" option="$2" part status=0
    shift 2
    part=$(mktemp)
    "$directory/bin/python" deploy/lock.py "$@" >"$part" &&
        "$directory/bin/python" -m pip install --quiet --disable-pip-version-check "$option" \
            --require-hashes --no-deps --no-build-isolation --requirement "$part" || status=$?
    rm -f "$part"
    return "$status"
}

make_venv() {
    local directory="$1" spark=""
    shift
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
        say "needs Python 3.11 or newer as '$python'; set PYTHON=/path/to/python3.11" >&2
        exit 1
    }
    if [ ! -x "$directory/bin/python" ] || ! "$directory/bin/python" -m pip --version >/dev/null 2>&1; then
        if ! "$python" -m venv "$directory" >/dev/null 2>&1; then
            say "python3-venv is missing; trying to install it"
            install_packages python3-venv || {
                say "could not; run: apt-get install python3-venv" >&2
                exit 1
            }
            "$python" -m venv "$directory"
        fi
    fi
    say "installing into $directory: $*"
    # The build backends come first: with build isolation pip would fetch backends of its own choice, without hashes.
    install_locked "$directory" --compile build
    # What servers import is compiled here, whatever PYTHONDONTWRITEBYTECODE says of later. To compile all of Spark and of
    # the tools for the few modules that are imported would take half a minute.
    # Spark comes beside them: its wheel is built here, which takes one core as long as all that servers need takes another.
    if [[ " $* " = *" analytics "* ]]; then
        install_locked "$directory" --no-compile analytics -base -server &
        spark=$!
    fi
    install_locked "$directory" --compile base server
    [ -z "$spark" ] || wait "$spark"
    install_locked "$directory" --no-compile base "$@"
    "$directory/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
}

see_to_java() {
    if command -v java >/dev/null && java -version 2>&1 | grep -Eq 'version "(17|18|19|2[0-9])'; then
        return 0
    fi
    say "no Java 17 or newer; trying to install openjdk-17-jre-headless"
    install_packages openjdk-17-jre-headless ||
        say "could not; Spark jobs and their tests need it (run: apt-get install openjdk-17-jre-headless); everything else works"
}

see_to_machines() {
    # Only root can make namespaces: ip makes them, tc cuts links, iptables takes a port away from a client.
    if [ "$(id -u)" != 0 ] || { command -v ip && command -v tc && command -v iptables; } >/dev/null; then
        return 0
    fi
    say "no ip, tc or iptables; trying to install iproute2 and iptables"
    install_packages iproute2 iptables ||
        say "could not; faults of a network need them (run: apt-get install iproute2 iptables)"
}

see_to_interop() {
    if command -v javac >/dev/null && command -v mvn >/dev/null; then
        return 0
    fi
    say "no JDK or no Maven; trying to install openjdk-17-jdk-headless and maven"
    install_packages openjdk-17-jdk-headless maven ||
        say "could not; what compares us with RocketMQ needs them (run: apt-get install openjdk-17-jdk-headless maven)"
}

see_to_browser() {
    if command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; then
        return 0
    fi
    say "no Chromium; trying to install chromium"
    install_packages chromium ||
        say "could not; tests of the console in a browser need it (run: apt-get install chromium); everything else works"
}

# promtool judges our rules and metrics, and a real server runs the queries of our dashboard. Only the two programs, beside
# our own: installed, the package would start a server of its own on every address of this machine.
see_to_prometheus() { # see_to_prometheus DIRECTORY
    local directory="$1" at
    if { command -v promtool && command -v prometheus; } >/dev/null || [ -x "$directory/bin/promtool" ]; then
        return 0
    fi
    say "no promtool; trying to take it out of Debian's package prometheus"
    at=$(mktemp -d)
    if (cd "$at" && apt-get download prometheus && dpkg-deb -x prometheus_*.deb .) >/dev/null 2>&1; then
        install "$at"/usr/bin/{prometheus,promtool} "$directory/bin/"
    else
        say "could not; tests of alarms and of the dashboard need it (run: apt-get install prometheus)"
    fi
    rm -rf "$at"
}

# What `make bench-field` starts beside us: Patroni into the environment, servers out of Debian's packages into the cache, with
# those packages that they need and this machine lacks. Installed, each would start a service of its own.
see_to_field() { # see_to_field DIRECTORY
    local directory="$1" cache="${XDG_CACHE_HOME:-$HOME/.cache}/rollcall/field" package
    install_locked "$directory" --no-compile field -base -server ||
        say "could not install Patroni; make bench-field skips it"
    mkdir -p "$cache"
    for package in etcd-server redis-server postgresql; do
        [ -d "$cache/$package" ] || unpack_package "$package" "$cache" ||
            say "could not have Debian's $package; make bench-field skips what needs it (run: apt-get update)"
    done
    see_to_interop
}

unpack_package() { # unpack_package NAME CACHE; the folder CACHE/NAME is whole or absent
    local package="$1" cache="$2" at names status=0
    command -v apt-get >/dev/null || return 1
    names=$(missing_packages "$package") || {
        [ "$(id -u)" = 0 ] && apt-get update >/dev/null 2>&1 && names=$(missing_packages "$package")
    } || return 1
    at=$(mktemp -d -p "$cache")
    say "taking $package out of Debian's packages"
    (cd "$at" && mkdir root && xargs -r apt-get download <<<"$names" &&
        find . -name '*.deb' -exec dpkg-deb -x {} root \;) >/dev/null 2>&1 &&
        chmod 755 "$at/root" && mv "$at/root" "$cache/$package" || status=$?
    rm -rf "$at"
    return "$status"
}

# A package and those that it needs, less what is installed here, newer or not.
missing_packages() { # missing_packages NAME
    LC_ALL=C apt-get --simulate --no-install-recommends install "$1" 2>/dev/null |
        awk '/^Inst / && $3 !~ /^\[/ {print $2}'
}

case "${1:-}" in
    venv) make_venv "${@:2}" ;;
    java) see_to_java ;;
    machines) see_to_machines ;;
    interop) see_to_interop ;;
    browser) see_to_browser ;;
    prometheus) see_to_prometheus "${2:-.venv}" ;;
    field) see_to_field "${2:-.venv}" ;;
    *)
        say "usage: deploy/setup.sh venv DIRECTORY EXTRA... | java | machines | interop | browser | prometheus DIRECTORY | field DIRECTORY" >&2
        exit 2
        ;;
esac
