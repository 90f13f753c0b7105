"""Upstream programs run as supervised child processes: Keystone and Glance, and whatever else needs supervision."""
