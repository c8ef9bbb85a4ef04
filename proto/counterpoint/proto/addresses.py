"""IP addresses that may be called on behalf of somebody else."""

import ipaddress

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_PUBLIC_IPV6 = ipaddress.IPv6Network("2000::/3")
_PROTOCOLS = ipaddress.IPv4Network("192.0.0.0/24")
"""Addresses for protocols, by which a cloud serves its metadata too."""
_METADATA = (
    ipaddress.IPv6Network("fd00:ec2::/32"),
    ipaddress.IPv6Network("fd20:ce::254/128"),
    ipaddress.IPv6Network("fd00:42::42/128"),
    ipaddress.IPv4Network("100.100.100.200/32"),
    ipaddress.IPv4Network("168.63.129.16/32"),
)
"""Addresses at which clouds serve credentials to their machines: Amazon, Google, Scaleway, Alibaba, Azure. Those of the
others are link-local or in `_PROTOCOLS`."""


def may_connect(address: str, private: bool) -> bool:
    """Whether an IP address may be called. A private one only where it is allowed, a link-local one never, nor one
    at which a cloud serves credentials.

    An IPv6 address that leads to an IPv4 one is judged by that.
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        ip = _ipv4_in(ip) or ip
    if (
        ip.is_link_local
        or ip.is_multicast
        or ip.is_unspecified
        or any(ip in network for network in (_PROTOCOLS, *_METADATA))
    ):
        return False
    is_public = ip.is_global and (ip.version == 4 or ip in _PUBLIC_IPV6)
    return is_public or (private and (ip.is_private or ip.is_loopback))


def _ipv4_in(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address in a mapped, 6to4 or NAT64 address."""
    if ip in _NAT64:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour
