#!/bin/bash
# make demo: packages, cloud, lab, and then what a user does (src/moorage/lab/demo.py).
#
#   MOORAGE_STATE  the cloud's folder (default: ./state); everything that is made is in it
#   KEEP=0         take everything down at the end and check that nothing is left
#   PYTHON         the interpreter with Moorage installed (default: .venv/bin/python, made by `make setup`)
set -euo pipefail
cd "$(dirname "$0")/.."
export MOORAGE_STATE="${MOORAGE_STATE:-$PWD/state}"
python="${PYTHON:-$PWD/.venv/bin/python}"
keep="${KEEP:-1}"
cloud=
started=$SECONDS

say() { printf '== %s\n' "$*"; }

packages() {
    local missing=() program
    for program in qemu-system-x86_64:qemu-system-x86 qemu-img:qemu-utils ovs-vswitchd:openvswitch-switch \
        ovn-controller:ovn-host ovn-northd:ovn-central ip:iproute2 ethtool:ethtool ping:iputils-ping; do
        command -v "${program%%:*}" >/dev/null || missing+=("${program##*:}")
    done
    [ ${#missing[@]} -eq 0 ] && return
    say "installing ${missing[*]}"
    # The packages would start daemons for the whole machine; the lab starts its own.
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
        chmod +x /usr/sbin/policy-rc.d
        trap 'rm -f /usr/sbin/policy-rc.d' RETURN
    fi
    apt-get -q update >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
}

world() { # namespaces, links of the machine itself, and processes that name the state folder
    ip netns list 2>/dev/null | sed 's/ .*//;s/^/namespace /' | sort
    ip -o link show 2>/dev/null | awk -F': ' '{print "link " $2}' | sort
    grep -lzF -- "$MOORAGE_STATE" /proc/[0-9]*/cmdline 2>/dev/null \
        | grep -v "^/proc/\($$\|self\)/" | sed 's/^/process /' || true
}

teardown() {
    say "taking everything down"
    "$python" -m moorage.lab down
    if [ -n "$cloud" ] && kill -TERM "$cloud" 2>/dev/null; then
        wait "$cloud" || true
    fi
    local left
    left=$(diff <(printf '%s\n' "$before") <(world) | sed -n 's/^> //p' || true)
    if [ -n "$left" ]; then
        say "left behind:"
        printf '%s\n' "$left"
        return 1
    fi
    say "nothing is left but $MOORAGE_STATE"
}

finish() {
    local status=$?
    trap - EXIT
    [ $status -eq 0 ] || say "the demo failed; the cloud's log is $MOORAGE_STATE/cloud.log"
    if [ "$keep" = 0 ]; then
        teardown || status=1
    elif [ $status -eq 0 ]; then
        say "the cloud runs on; stop it with: $python -m moorage.lab down; kill -TERM ${cloud:-its process}"
    fi
    exit $status
}

export PATH="$PATH:/usr/sbin:/sbin"
real=no
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    packages && real=yes
fi
mkdir -p "$MOORAGE_STATE"
before=$(world)
trap finish EXIT

if "$python" -m moorage.lab wait --patience 0 2>/dev/null; then
    say "the cloud in $MOORAGE_STATE runs already"
else
    say "starting the cloud in $MOORAGE_STATE (log: cloud.log there)"
    setsid "$python" -m moorage.cli.main up >"$MOORAGE_STATE/cloud.log" 2>&1 </dev/null &
    cloud=$!
    "$python" -m moorage.lab wait --patience 120
fi
say "the cloud answers after $((SECONDS - started)) s"

if [ "$real" = yes ]; then
    say "building the lab: two racks of two hosts"
    "$python" -m moorage.lab up
else
    say "no root: hosts are simulated, and what needs a guest is left out"
fi
"$python" -m moorage.lab demo
say "the demo took $((SECONDS - started)) s"
