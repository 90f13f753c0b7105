"""The Placement API under load, ours and, where it is installed, OpenStack's; `make bench-placement`."""
