#!/bin/sh
# Called by udhcpc with what the DHCP server said.
[ "$1" = bound ] || [ "$1" = renew ] || exit 0
[ -n "$mtu" ] && ip link set dev $interface mtu $mtu
[ "$1" = bound ] && ip addr flush dev $interface scope global
ip addr replace $ip/${mask:-24} dev $interface
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
for server in $dns; do echo "nameserver $server"; done >/etc/resolv.conf
read -r name </proc/sys/kernel/hostname
printf '\nmoorage guest %s ready %s\n' "$name" "$ip" >/dev/console
