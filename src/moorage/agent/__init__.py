"""The program on hosts: takes commands, runs guests, plugs their ports, reports. Imports wire and core alone."""
