"""The agents' API: for hosts, each with its own credential; no Keystone token opens it."""
