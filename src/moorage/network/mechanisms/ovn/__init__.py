"""OVN: from rows of the network service to rows of the Northbound database, and back from the Southbound one."""
