"""Networks from which connections are let in; it is looked at before anything of a connection is read."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

KNOWN_MAX = 10_000  # addresses of which it is remembered whether they may


class AllowList:
    """Some networks; without any everybody may."""

    def __init__(self, networks: Iterable[str]):
        self.networks = [ip_network(each) for each in networks]
        self._known: dict[str, bool] = {}

    def allows(self, address: str) -> bool:
        found = self._known.get(address)
        if found is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            found = self._known[address] = self._look(address)
        return found

    def _look(self, address: str) -> bool:
        if not self.networks:
            return True
        try:
            own = ip_address(address.partition("%")[0])
        except ValueError:
            return False  # of a socket that is none of the Internet's
        if isinstance(own, IPv6Address) and own.ipv4_mapped is not None:
            own = own.ipv4_mapped  # as a listener of both kinds has it
        return any(own in network for network in self.networks)
