"""The control plane's side of the agents: host registry, command queue, results, events, heartbeats."""
