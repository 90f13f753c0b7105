"""What runs guests: QEMU, or a simulation of it."""
