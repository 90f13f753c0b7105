#!/bin/sh
# The power button: what an ordinary stop or a soft reboot of the server presses.
echo "moorage guest $(hostname) power button" >/dev/console
sync
poweroff -f
