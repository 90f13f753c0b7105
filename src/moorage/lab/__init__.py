"""A data centre on one machine: racks of hosts as network namespaces, with real switches, agents and guests."""
