#!/bin/sh
# make demo: the cloud, its lab, and then what a user does (src/moorage/lab/demo.py). `make setup` has run before.
#
#   MOORAGE_STATE  the cloud's folder; everything that is made is in it
#   KEEP=0         take everything down at the end, and check that nothing is left
#   BIN            the folder of the programs (default: .venv/bin)
set -eu
cd "$(dirname "$0")/.."
if [ "$(id -u)" = 0 ]; then default=/var/lib/moorage; else default=$PWD/state; fi
export MOORAGE_STATE="${MOORAGE_STATE:-$default}"
export PATH="$PATH:/usr/sbin:/sbin"
bin=${BIN:-$PWD/.venv/bin}
keep=${KEEP:-1}
log=$MOORAGE_STATE/cloud.log
cloud=
began=$(date +%s)

say() { printf '==> %s (%s s)\n' "$*" "$(($(date +%s) - began))"; }

# Namespaces, the machine's own links, and processes that name the state folder.
world() {
    ip netns list 2>/dev/null | sed 's/ .*//; s/^/namespace /'
    ip -o link show 2>/dev/null | awk -F': ' '{ print "link " $2 }'
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
    world | sort >"$MOORAGE_STATE/world.after"
    left=$(comm -13 "$MOORAGE_STATE/world.before" "$MOORAGE_STATE/world.after")
    if [ -n "$left" ]; then
        printf 'left behind:\n%s\n' "$left" >&2
        return 1
    fi
    say "nothing is left but the folder $MOORAGE_STATE"
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
    world | sort >"$MOORAGE_STATE/world.before"
    trap finish EXIT
    trap 'exit 130' INT TERM
    start_cloud
fi
say "the cloud is ready"
"$bin/moorage" lab demo
