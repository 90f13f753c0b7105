"""Networks, subnets, addresses, ports, bindings and security groups; and the mechanisms that make them real."""
