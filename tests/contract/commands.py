"""What the contract run does: commands of ``openstack`` in order, then plain requests at every microversion.

A row is (who, since, until, words): the user, the microversions at which the command has what it needs (None: no
end), and the words. ``{image}`` and ``{network}`` are filled in.
"""

from typing import NamedTuple

VERSIONS = ("2.1", "2.37", "2.64", "2.90", "2.96")
"""The microversions at which every command is given: the first, the last, and others between changes of form."""
NEWEST = 96


class Row(NamedTuple):
    """One command."""

    who: str
    since: int
    until: int | None
    words: str


def a(words: str, since: int = 1, until: int | None = None) -> Row:
    """For the administrator."""
    return Row("admin", since, until, words)


def u(words: str, since: int = 1, until: int | None = None) -> Row:
    """For a user."""
    return Row("demo", since, until, words)


COMMANDS = (
    # flavors
    a("flavor create --ram 64 --disk 1 --vcpus 1 --property hw:cpu_policy=shared c1"),
    a("flavor create --ram 64 --disk 1 --vcpus 1 --private c2"),
    a("flavor create --ram 64 --disk 1 --vcpus 1 --description words c3", 55),
    a("flavor set --project demo c2"),
    a("flavor show c2"),
    a("flavor unset --project demo c2"),
    a("flavor set --property a=b c1"),
    a("flavor unset --property a c1"),
    a("flavor list --all --long"),
    a("flavor delete c2"),
    a("flavor set --description others c3", 55),
    a("flavor delete c3", 55),
    u("flavor list"),
    u("flavor show c1"),
    # hosts
    a("hypervisor list"),
    a("hypervisor list --matching sim-0001"),
    a("hypervisor show sim-0001"),
    a("hypervisor stats show", 1, 87),
    a("compute service list --long"),
    a("compute service set --disable --disable-reason fan sim-0002 nova-compute"),
    a("compute service set --enable sim-0002 nova-compute"),
    a("availability zone list --compute --long"),
    u("availability zone list --compute"),
    a("aggregate create --zone z1 --property k=v g1"),
    a("aggregate add host g1 sim-0001"),
    a("aggregate set --property more=1 g1"),
    a("aggregate list --long"),
    a("aggregate show g1"),
    a("aggregate remove host g1 sim-0001"),
    a("aggregate set --name g2 g1"),
    a("aggregate delete g2"),
    # quotas and limits
    a("quota show --compute demo"),
    a("quota set --instances 20 --cores 30 demo"),
    a("quota show --compute --usage demo"),
    a("quota show --compute --default demo"),
    a("quota delete --compute demo"),
    # The client asks with reserved=, which Nova's own schema refuses from 2.75 on.
    u("limits show --absolute", 1, 74),
    a("limits show --absolute --project demo", 1, 74),
    u("limits show --rate", 1, 74),
    # keypairs and server groups
    u("keypair create --public-key {key} k1"),
    u("keypair list"),
    u("keypair show k1"),
    a("keypair list --user demo", 10),
    u("server group create --policy affinity sg1"),
    u("server group create --policy anti-affinity --rule max_server_per_host=2 sg2", 64),
    u("server group list --long"),
    u("server group show sg1"),
    a("server group list --all-projects"),
    # servers
    u(
        "server create --image {image} --flavor c1 --network {network} --key-name k1 --property a=b "
        "--hint group={group} --wait s1"
    ),
    u(
        "server create --image {image} --flavor c1 --network {network} --tag one --description d --wait s2",
        52,
    ),
    u("server create --image {image} --flavor c1 --nic none --hostname h3 --wait s3", 90),
    u("server list"),
    u("server list --long"),
    u("server list --status ACTIVE --name s1 --sort-column name --limit 1"),
    a("server list --all-projects --long --host sim-0001"),
    u("server list --tags one", 26),
    u("server list --changes-since 2020-01-01T00:00:00Z"),
    u("server list --no-name-lookup --deleted"),
    u("server show s1"),
    a("server show {server}"),
    u("server set --property c=d s1"),
    u("server unset --property a s1"),
    u("server set --name s9 s1"),
    u("server set --name s1 s9"),
    u("server set --description words s1", 19),
    u("server set --hostname other s1", 90),
    u("server set --tag two s1", 26),
    u("server unset --tag two s1", 26),
    u("server set --tag two s1", 26),
    u("console log show --lines 3 s1"),
    u("server stop s1"),
    u("server start s1"),
    u("server reboot --wait s1"),
    u("server reboot --hard --wait s1"),
    u("server lock s1"),
    u("server unlock s1"),
    u("server lock --reason because s1", 73),
    u("server show s1", 73),
    u("server unlock s1", 73),
    u("server add security group s1 other"),
    u("server remove security group s1 other"),
    u("server event list --long s1"),
    a("server event list {server}"),
    a("server set --auto-approve --state error {server}"),
    a("server set --auto-approve --state active {server}"),
)

LAST = (
    u("server delete --wait s1"),
    u("server delete --wait s2", 52),
    u("server delete --wait s3", 90),
    u("server event list {server}", 21),
    u("server group delete sg1"),
    u("server group delete sg2", 64),
    u("keypair delete k1"),
    a("flavor delete c1"),
)

GETS = (
    "/servers", "/servers?limit=1", "/servers/detail", "/servers/detail?status=ACTIVE&sort_key=created_at",
    "/servers?not-tags=x", "/servers/{server}", "/servers/{server}/ips", "/servers/{server}/ips/net",
    "/servers/{server}/metadata", "/servers/{server}/metadata/c", "/servers/{server}/tags",
    "/servers/{server}/tags/two", "/servers/{server}/os-interface", "/servers/{server}/os-interface/{port}",
    "/servers/{server}/os-security-groups", "/servers/{server}/os-instance-actions",
    "/servers/{server}/os-instance-actions/{request}", "/flavors", "/flavors/detail?sort_key=name",
    "/flavors/{flavor}", "/flavors/{flavor}/os-extra_specs", "/flavors/{flavor}/os-extra_specs/hw:cpu_policy",
    "/flavors/{flavor}/os-flavor-access", "/os-keypairs", "/os-keypairs/k1", "/limits", "/limits?reserved=1",
    "/os-quota-sets/{project}", "/os-quota-sets/{project}/defaults", "/os-quota-sets/{project}/detail",
    "/os-quota-class-sets/default", "/os-server-groups", "/os-availability-zone",
    "/os-availability-zone/detail", "/os-aggregates", "/os-hypervisors", "/os-hypervisors/detail",
    "/os-hypervisors/{hypervisor}", "/os-hypervisors/sim/search", "/os-hypervisors/sim-0001/servers",
    "/os-services", "/os-services?host=sim-0001", "/", "/nothing",
    "/servers/00000000-0000-0000-0000-000000000000", "/servers?changes-since=never", "/flavors/none",
    "/os-keypairs/none", "/servers/detail?marker=none",
)  # fmt: skip
"""Asked as the administrator (servers as their owner) at every microversion."""

WRONG = (
    ("POST", "/servers", {"server": {"name": 7}}),
    ("POST", "/servers", {}),
    ("POST", "/flavors", {"flavor": {"name": "x", "ram": "much", "vcpus": 1, "disk": 1}}),
    ("POST", "/os-keypairs", {"keypair": {"name": "k", "colour": "red"}}),
    ("POST", "/servers/{server}/action", {"os-start": None}),
    ("POST", "/servers/{server}/action", {"dance": None}),
    ("PUT", "/servers/{server}", {"server": {"colour": "red"}}),
    ("PUT", "/servers/{server}/metadata/a", {"meta": {"b": "c"}}),
    ("POST", "/os-aggregates", {"aggregate": {}}),
    ("POST", "/os-server-groups", {"server_group": {"name": "g"}}),
)
"""Requests that are refused; how an error looks is in the contract too."""

FALSE = {
    (
        "code",
        "PUT /servers/{server_id}/tags/{id}",
    ): "Nova makes this answer by hand, 201 or 204; the export sees neither",
}
"""Findings that are the checker's own, by kind and place, each with its reason."""
