"""Servers and what they need: flavors, keypairs, quotas, availability zones, hosts as hypervisors."""
