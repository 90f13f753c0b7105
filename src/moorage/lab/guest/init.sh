#!/bin/sh
# Process 1 of the guest image: network, hostname and keys, three small services, a shell on the serial console.
# Under emulation every program started costs 0.1 s, so the way to the network uses the shell's own words where it can.
export PATH=/bin HOME=/root TERM=dumb
mount -t proc proc /proc
mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
modprobe -a $(cat /etc/modules)

# Find the config drive, an ISO or a FAT file system on any disk, and keep a copy of what is on it.
config=
look() {
    for disk; do
        [ -b "$disk" ] && mount -o ro -t $kind "$disk" /mnt 2>/dev/null || continue
        [ -f /mnt/openstack/latest/meta_data.json ] && cp -r /mnt/openstack /run/ && config=/run/openstack/latest
        umount /mnt
        [ -z "$config" ] || return
    done
}
kind=iso9660 && look /dev/vd[b-z]
if [ -z "$config" ]; then
    modprobe -a $(cat /etc/modules.late)
    kind=iso9660 && look /dev/sr[0-9] /dev/sd[a-z]
    [ -n "$config" ] || kind=vfat && look /dev/vd[b-z] /dev/sd[a-z]
fi

name=guest meta= keys=
if [ -n "$config" ]; then
    while read -r line || [ -n "$line" ]; do meta="$meta$line"; done <$config/meta_data.json
    case $meta in *'"hostname":'*) name=${meta#*\"hostname\":} name=${name#*\"} name=${name%%[\".]*} ;; esac
    # "public_keys": {"name": "type base64 comment", ...}: every second string is a line of authorized_keys
    case $meta in *'"public_keys":'*) keys=${meta#*\"public_keys\":} keys=${keys#*\{} keys=${keys%%\}*} ;; esac
    while [ "$keys" != "${keys#*\":}" ]; do
        keys=${keys#*\":} keys=${keys#*\"} line=${keys%%\"*} keys=${keys#*\"}
        echo "${line%\\n}"
    done >/root/.ssh/authorized_keys
fi
echo "$name" >/proc/sys/kernel/hostname
echo "moorage guest $name" >/var/www/index.html
echo "127.0.0.1 localhost $name" >/etc/hosts

ip link set dev lo up
while read -r nic _; do
    case $nic in eth*:)
        nic=${nic%%:*}
        ip link set dev $nic up
        udhcpc -i $nic -s /etc/lease.sh -O 26 -O 121 -t 60 -T 1 -b </dev/null >/dev/null 2>&1 &
        ;;
    esac
done </proc/net/dev
nc -ll -p 7 -e cat </dev/null >/dev/null 2>&1 &
httpd -p 80 -h /var/www

mount -t sysfs sys /sys
mkdir -p /dev/pts && mount -t devpts pts /dev/pts
modprobe -a $(cat /etc/modules.power)
acpid -d </dev/null >/dev/null 2>&1 &
echo "moorage guest $name, keys: $([ -f /root/.ssh/authorized_keys ] && wc -l </root/.ssh/authorized_keys || echo 0)"
line=
[ -n "$config" ] && [ -f $config/user_data ] && read -r line <$config/user_data
case $line in '#!'*) cp $config/user_data /run/user_data && chmod +x /run/user_data && /run/user_data ;; esac
while true; do
    setsid cttyhack sh -l
    sleep 1
done
