"""Wiring: the roles of a control plane, built from configuration and handed to each other."""
