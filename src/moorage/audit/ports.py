"""Ports and bindings, seen from the servers they belong to."""

from moorage.audit.model import Invariant

INVARIANTS = (
    Invariant(
        name="port.server",
        sentence="a port in a server's use, or made for one, belongs to one that exists",
        things="""
            SELECT p.id AS subject, p.device_id, p.device_owner, p.created_for_device, s.id IS NULL AS broken
            FROM ports p LEFT JOIN live s ON s.id = p.device_id
            WHERE p.created_for_device
               OR (p.device_id <> '' AND starts_with(p.device_owner, 'compute:'))
               OR p.device_id IN (SELECT id FROM servers)
        """,
        message=(
            "device {device_id} ({device_owner}) is no server that exists; made for it: {created_for_device}"
        ),
    ),
    Invariant(
        name="port.failed",
        sentence="a server whose build failed keeps no port",
        things="""
            SELECT s.id AS subject, p.id AS port, p.created_for_device, p.id IS NOT NULL AS broken
            FROM settled s LEFT JOIN ports p ON p.device_id = s.id
            WHERE s.vm_state = 'error' AND s.host IS NULL
        """,
        message="it is in ERROR on no host, and port {port} is still its own",
    ),
    Invariant(
        # No other binding either: an inactive one is left by a move that did not clean up.
        name="port.binding",
        sentence="the ports of a server on a host are bound to that host, and to no other",
        things="""
            SELECT p.id AS subject, s.id AS server, s.host,
                   coalesce(b.bindings, '[]') AS bindings,
                   coalesce(b.bindings, '[]') <> jsonb_build_array(jsonb_build_array(s.host, 'ACTIVE', true)) AS broken
            FROM settled s JOIN ports p ON p.device_id = s.id
            LEFT JOIN LATERAL (
                SELECT jsonb_agg(jsonb_build_array(
                           b.host, b.status, b.vif_type NOT IN ('binding_failed', 'unbound')) ORDER BY b.host) AS bindings
                FROM bindings b WHERE b.port_id = p.id
            ) b ON true
            WHERE s.host IS NOT NULL AND s.vm_state NOT IN ('building', 'deleted', 'resized')
        """,
        message="server {server} is on host {host}; the port's bindings [host, status, good] are {bindings}",
    ),
    Invariant(
        name="port.status",
        sentence="the ports of a server that runs are ACTIVE",
        things="""
            SELECT p.id AS subject, s.id AS server, s.host, p.status,
                   p.status <> 'ACTIVE' AND coalesce(p.updated_at, p.created_at) <= now() - grace AS broken
            FROM parameters, settled s JOIN ports p ON p.device_id = s.id
            WHERE s.vm_state = 'active' AND s.host IS NOT NULL AND p.admin_state_up
        """,
        message="server {server} is ACTIVE on host {host}, the port is {status}",
    ),
    Invariant(
        name="port.zone",
        sentence="a server's ports name the availability zone that the server is in",
        things="""
            SELECT p.id AS subject, s.id AS server, s.availability_zone, p.device_owner,
                   p.device_owner <> 'compute:' || s.availability_zone AS broken
            FROM settled s JOIN ports p ON p.device_id = s.id
            WHERE s.host IS NOT NULL AND s.availability_zone IS NOT NULL
              AND s.vm_state NOT IN ('building', 'deleted')
        """,
        message="server {server} is in zone {availability_zone}, the port's owner is {device_owner}",
    ),
    Invariant(
        # Ports of the network service itself (DHCP, routers) and of bare-metal nodes are bound without a server.
        name="binding.server",
        sentence="no port is bound to a host without a device, or for a server that is on none",
        things="""
            SELECT p.id AS subject, b.host, p.device_id,
                   p.device_id = '' OR s.id IS NOT NULL AS broken
            FROM bindings b JOIN ports p ON p.id = b.port_id
            LEFT JOIN settled s ON s.id = p.device_id AND s.host IS NULL
            WHERE NOT starts_with(p.device_owner, 'network:') AND NOT starts_with(p.device_owner, 'baremetal:')
        """,
        message="bound to host {host}; its device is '{device_id}'",
    ),
    Invariant(
        name="binding.host",
        sentence="a port is bound to a host that exists",
        things="""
            SELECT b.port_id AS subject, b.host,
                   NOT EXISTS (SELECT FROM hosts h WHERE h.name = b.host) AS broken
            FROM bindings b
        """,
        message="there is no host {host}",
    ),
    Invariant(
        name="network.segment",
        sentence="every network has a segment",
        things="""
            SELECT n.id AS subject, n.name,
                   NOT EXISTS (SELECT FROM segments s WHERE s.network_id = n.id) AS broken
            FROM networks n
        """,
        message="network {name} has none: its ports can be bound nowhere",
    ),
)
