#!/bin/busybox sh
# Called by udhcpc with what the DHCP server said.
[ "$1" = bound ] || [ "$1" = renew ] || exit 0
[ -n "$mtu" ] && ip link set dev $interface mtu $mtu
if ! ip -4 addr show dev $interface | grep -q "inet $ip/"; then
    ip -4 addr flush dev $interface
    ip addr add $ip/${mask:-24} dev $interface
fi
set -- $staticroutes
if [ $# -ge 2 ]; then
    while [ $# -ge 2 ]; do
        case $2 in
            0.0.0.0) ip route replace $1 dev $interface ;;
            *) ip route replace $1 via $2 dev $interface ;;
        esac
        shift 2
    done
else
    for hop in $router; do ip route replace default via $hop dev $interface && break; done
fi
: >/etc/resolv.conf
for server in $dns; do echo "nameserver $server" >>/etc/resolv.conf; done
printf '\nmoorage guest %s ready %s\n' "$(hostname)" "$ip" >/dev/console
