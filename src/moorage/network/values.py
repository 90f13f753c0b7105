"""Pure rules of values that a port, a subnet or a network takes: MAC addresses, address pairs, names of DNS, DHCP options.

What passes goes into OVN's rows as it is, so nothing passes that is not what it should be; the result is canonical, so
that equal things compare equal there. The rules are Neutron's.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from moorage.network import cidr, errors

PAIRS = 10
"""Address pairs that a port may have; Neutron's default of max_allowed_address_pair."""
NAMESERVERS = 5
"""Name servers of a subnet; Neutron's default of max_dns_nameservers."""
ROUTES = 20
"""Routes of a subnet; Neutron's default of max_subnet_host_routes."""
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z")
_LABEL = re.compile(r"(?!-)[a-zA-Z0-9-]{1,63}(?<!-)\Z")
_LONGEST_NAME = 255
# Options that may be empty: they then take away what the subnet would say.
_MAY_BE_BLANK = ("router", "classless-static-route")


def mac(text: str, *, field: str = "mac_address") -> str:
    """The MAC address of one NIC, in lower case with colons. Raises InvalidInput naming ``field``."""
    found = text.lower().replace("-", ":")
    if not _MAC.match(found) or int(found[:2], 16) & 1 or not int(found.replace(":", ""), 16):
        raise errors.InvalidInput(f"{field}: '{text[:64]}' is not a valid MAC address of a NIC", field=field)
    return found


def address_pairs(pairs: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Address pairs: each an address or a CIDR, perhaps with a MAC address. Raises InvalidInput naming the field."""
    field = "allowed_address_pairs"
    if len(pairs) > PAIRS:
        raise errors.InvalidInput(f"{field}: there may be {PAIRS} of them at most", field=field)
    found = [_pair(pair, f"{field}[{place}]") for place, pair in enumerate(pairs)]
    for place, pair in enumerate(found):
        if pair in found[:place]:
            raise errors.InvalidInput(f"{field}[{place}]: {pair['ip_address']} is given twice", field=field)
    return found


def _pair(pair: Mapping[str, str], where: str) -> dict[str, str]:
    text, field = pair["ip_address"], f"{where}.ip_address"
    address = cidr.parse_cidr(text, field=field) if "/" in text else cidr.parse_address(text, field=field)
    if address.is_multicast:
        raise errors.InvalidInput(f"{field}: nothing is sent from the multicast address {text}", field=field)
    found = {"ip_address": str(address)}
    if "mac_address" in pair:
        found["mac_address"] = mac(pair["mac_address"], field=f"{where}.mac_address")
    return found


def dns_name(text: str, *, field: str = "dns_name") -> str:
    """A name of DNS, or none (empty), in lower case. Raises InvalidInput naming ``field``."""
    if not text:
        return text
    labels = text.removesuffix(".").split(".")
    if len(text) > _LONGEST_NAME or not all(_LABEL.match(label) for label in labels):
        raise errors.InvalidInput(
            f"{field}: '{text[:64]}' is no name of DNS: labels of 1 to 63 letters, digits and hyphens, no hyphen at an"
            f" end, joined by dots, {_LONGEST_NAME} characters in all",
            field=field,
        )
    if len(labels) > 1 and labels[-1].isdecimal():
        raise errors.InvalidInput(f"{field}: the last label of '{text[:64]}' is a number", field=field)
    return text.lower()


def dns_domain(text: str) -> str:
    """A domain that ends with a dot, or none (empty). Raises InvalidInput."""
    if text and not text.endswith("."):
        raise errors.InvalidInput(
            f"dns_domain: '{text[:64]}' is not a whole name: it ends with a dot", field="dns_domain"
        )
    return dns_name(text, field="dns_domain")


def dhcp_options(options: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """DHCP options as they are. Raises InvalidInput where one has no value that must have one."""
    for place, option in enumerate(options):
        value = option.get("opt_value")
        if value is not None and not value.strip() and option["opt_name"] not in _MAY_BE_BLANK:
            raise errors.InvalidInput(
                f"extra_dhcp_opts[{place}].opt_value: the option {option['opt_name']} needs a value",
                field=f"extra_dhcp_opts[{place}].opt_value",
            )
    return options
