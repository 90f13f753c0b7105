#!/bin/busybox sh
# Process 1 of the guest image: network, hostname and keys, three small services, a shell on the serial console.
export PATH=/bin HOME=/root TERM=vt100
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /tmp /run /mnt /etc /root/.ssh /var/www
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts && mount -t devpts pts /dev/pts
exec </dev/console >/dev/console 2>&1

for module in $(cat /modules/order); do insmod /modules/$module; done
mdev -s

# The config drive may be any disk, an ISO or a FAT file system: look into each.
config=
for try in 1 2 3; do
    for disk in /dev/sr[0-9] /dev/vd[a-z] /dev/sd[a-z] /dev/vd[a-z][0-9]; do
        [ -b "$disk" ] || continue
        for kind in iso9660 vfat; do
            mount -o ro -t $kind "$disk" /mnt 2>/dev/null || continue
            if [ -f /mnt/openstack/latest/meta_data.json ]; then
                mkdir -p /run/config && cp -r /mnt/openstack /run/config/ && config=/run/config/openstack/latest
            fi
            umount /mnt
            [ -n "$config" ] && break 3
        done
    done
    [ -n "$(ls /dev/vd? /dev/sr? 2>/dev/null)" ] && break
    sleep 0.3
    mdev -s
done

name=guest
if [ -n "$config" ]; then
    tr -d '\n' <$config/meta_data.json >/run/meta
    found=$(sed -n 's/.*"hostname": *"\([^"]*\)".*/\1/p' /run/meta)
    [ -n "$found" ] && name=${found%%.*}
    # "public_keys": {"name": "type base64 comment", ...}: every value is a line of authorized_keys
    sed -n 's/.*"public_keys": *{\([^}]*\)}.*/\1/p' /run/meta | sed 's/\\n//g' \
        | awk -F'"' '{for (i = 4; i <= NF; i += 4) print $i}' >/root/.ssh/authorized_keys
    chmod 600 /root/.ssh/authorized_keys
fi
hostname "$name"
echo "127.0.0.1 localhost $name" >/etc/hosts
echo "root:x:0:0:root:/root:/bin/sh" >/etc/passwd
echo "moorage guest $name, keys: $(cat /root/.ssh/authorized_keys 2>/dev/null | wc -l)"
echo "moorage guest $name" >/var/www/index.html

ip link set dev lo up
acpid -d </dev/null >/dev/null 2>&1 &
nc -ll -p 7 -e cat </dev/null >/dev/null 2>&1 &
httpd -p 80 -h /var/www
for path in /sys/class/net/eth*; do
    nic=${path##*/}
    [ -e "$path" ] || continue
    ip link set dev $nic up
    udhcpc -i $nic -s /etc/lease.sh -x hostname:$name -O 26 -O 121 -t 30 -T 1 -b -S </dev/null >/dev/null 2>&1 &
done
[ -n "$config" ] && [ "$(head -c 2 $config/user_data 2>/dev/null)" = "#!" ] && (
    cp $config/user_data /run/user_data && chmod +x /run/user_data && /run/user_data
)
while true; do
    setsid cttyhack sh -l
    sleep 1
done
