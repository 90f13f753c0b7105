"""One rule: a host acts for itself. The certificate says which host; there is no target to choose."""

HOST = "agent:host"
DEFAULTS: dict[str, str] = {HOST: "@"}
