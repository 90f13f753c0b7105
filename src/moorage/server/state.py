"""The state folder: where everything that outlives the process is."""

from pathlib import Path

from moorage.core.errors import MoorageError
from moorage.core.secrets import check_modes

# What only its owner may read, where it exists. Each is made with such a mode; these are looked at in case somebody
# copied or unpacked the folder.
SECRETS = (
    "credentials.json",
    "clouds.yaml",
    "*.key",
    "postgres",
    "keystone/keystone.conf",
    "keystone/*-keys",
    "keystone/*-keys/*",
    "glance/glance-api.conf",
    "glance/images",
    "simulated/*/identity.*",
    "lab/*/*/agent/identity.*",
)


class StateUnusable(MoorageError):
    """The state folder cannot be used as it is."""

    code = "server.state_unusable"


class StateFolder:
    """Paths in the state folder. ``prepare`` makes it and refuses one that others may write."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.postgres = self.root / "postgres"
        self.ovn = self.root / "ovn"
        self.lab = self.root / "lab"
        self.cache = self.root / "cache"
        self.simulated = self.root / "simulated"
        self.clouds = self.root / "clouds.yaml"
        self.agent_socket = self.root / "agent.sock"
        self.lock = self.root / "lock"

    def prepare(self) -> None:
        """Make the folder; raises StateUnusable where another account may write to it, TooOpen where it may read secrets."""
        # Hosts of the lab and PostgreSQL's account pass through it; each thing in it has its own mode.
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o711)
        except OSError as error:
            raise StateUnusable(
                f"{self.root} cannot be made ({error.strerror}): name another folder in MOORAGE_STATE"
            ) from error
        mode = self.root.stat().st_mode & 0o777
        if mode & 0o022:
            raise StateUnusable(f"{self.root} may be written by others (mode {mode:o}): chmod go-w it")
        if len(str(self.agent_socket).encode()) > 100:
            raise StateUnusable(f"{self.root} is too long a path for the sockets in it: choose a shorter one")
        check_modes((path for path in self.root.iterdir() if path.is_dir()), 0o022)
        check_modes((path for pattern in SECRETS for path in self.root.glob(pattern)), 0o077)
