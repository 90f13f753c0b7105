"""What plugs ports: Open vSwitch under OVN, or a simulation of it."""
