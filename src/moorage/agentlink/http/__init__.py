"""The agents' API: for hosts, each with its own certificate; no Keystone token opens it."""
