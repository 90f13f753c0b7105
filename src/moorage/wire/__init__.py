"""Messages between the control plane and the agents: frozen types, protocol versions, coding."""
