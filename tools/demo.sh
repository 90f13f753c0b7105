#!/bin/sh
# make demo: the cloud, its lab, and then what a user does (src/moorage/lab/demo.py). `make setup` has run before.
#
#   MOORAGE_STATE  the cloud's folder (default: as for `moorage up`); everything that is made is in it
#   KEEP=0         take everything down at the end, and check that none of its processes and network
#                  namespaces is left
#   BIN            the folder of the programs (default: .venv/bin)
set -eu
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"
bin=${BIN:-$PWD/.venv/bin}
keep=${KEEP:-1}
MOORAGE_STATE=$("$bin/moorage" config show | sed -n 's/^state = \(.*\)  # .*$/\1/p')
export MOORAGE_STATE
log=$MOORAGE_STATE/cloud.log
cloud=
began=$(date +%s)

say() { printf '==> %s (%s s)\n' "$*" "$(($(date +%s) - began))"; }

# Processes that name the state folder. Other labs on the machine are not looked at.
processes() {
    for line in /proc/[0-9]*/cmdline; do
        pid=${line#/proc/}
        pid=${pid%/cmdline}
        if [ "$pid" != $$ ] && grep -qzF -e "$MOORAGE_STATE" "$line" 2>/dev/null; then
            echo "process $pid $(tr '\0' ' ' <"$line" | cut -c 1-120)"
        fi
    done
}

stop_cloud() {
    [ -n "$cloud" ] || return 0
    kill -TERM "$cloud" 2>/dev/null || true
    wait "$cloud" || true
}

teardown() {
    say "taking everything down"
    stop_cloud
    "$bin/moorage" lab down
    processes | sort >"$MOORAGE_STATE/processes.after"
    left=$(
        comm -13 "$MOORAGE_STATE/processes.before" "$MOORAGE_STATE/processes.after"
        "$bin/moorage" lab status | grep '^namespace ' || true
    )
    if [ -n "$left" ]; then
        printf 'left behind:\n%s\n' "$left" >&2
        return 1
    fi
    say "no process and no network namespace is left, but the folder $MOORAGE_STATE is"
}

finish() {
    status=$?
    trap - EXIT INT TERM
    [ "$status" = 0 ] || {
        say "the demo did not get to its end; the last lines of $log:"
        tail -n 15 "$log" 2>/dev/null || true
    }
    if [ "$keep" = 0 ]; then
        teardown || status=1
    elif [ -n "$cloud" ] && kill -0 "$cloud" 2>/dev/null; then
        say "the cloud runs on (log: $log)"
        echo "    stop it:             kill $cloud        (hosts and guests go on; 'make up' finds them again)"
        echo "    take the lab down:   MOORAGE_STATE=$MOORAGE_STATE $bin/moorage lab down"
    fi
    exit "$status"
}

start_cloud() {
    say "starting the cloud in $MOORAGE_STATE"
    setsid "$bin/moorage" up >"$log" 2>&1 </dev/null &
    cloud=$!
    shown=0
    until grep -q '^moorage: ready' "$log"; do
        kill -0 "$cloud" 2>/dev/null || return 1
        sleep 0.2
        total=$(grep -c '^moorage: ' "$log" || true)
        [ "$total" = "$shown" ] || sed -n 's/^moorage: /    /p' "$log" | sed -n "$((shown + 1)),\$p"
        shown=$total
    done
}

mkdir -p "$MOORAGE_STATE"
if "$bin/moorage" lab wait --patience 0 2>/dev/null; then
    say "the cloud in $MOORAGE_STATE runs already"
    if [ "$keep" = 0 ]; then
        echo "KEEP=0 takes down only what it started: stop that cloud first, or name another MOORAGE_STATE" >&2
        exit 1
    fi
else
    : >"$log"
    processes | sort >"$MOORAGE_STATE/processes.before"
    trap finish EXIT
    trap 'exit 130' INT TERM
    start_cloud
fi
say "the cloud is ready"
if [ "$keep" = 0 ]; then
    "$bin/moorage" lab demo --no-keep
else
    "$bin/moorage" lab demo
fi
