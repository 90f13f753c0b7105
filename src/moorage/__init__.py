"""Moorage: a network-aware cloud control plane for virtual machines and bare metal."""
