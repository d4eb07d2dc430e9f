"""The provider for the simulated cloud of `skysail dev`, in Python.

The interfaces of guests/simcloud by the same requests, as an example for authors.
"""

from api import parse
from balancing import Balancers, Inventory
from machines import SCHEME, Machines
from routing import Routing
from volumes import Volumes

import skysail_provider
from skysail_provider import Info, Problem, has_fatal

__all__ = ["Balancers", "Identity", "Inventory", "Machines", "Routing", "Volumes"]


class Identity(skysail_provider.Identity):
    """Describes the provider."""

    def describe(self) -> Info:
        """An interpreter needs more fuel than a compiled provider for a list of machines."""
        return Info(
            name=SCHEME,
            version="0.1.0",
            description="Skysail's simulated cloud, in Python",
            page_nodes=250,
        )

    def check_config(self, text: str) -> list[Problem]:
        return parse(text)[1]

    def origins(self, text: str) -> list[str]:
        cloud, problems = parse(text)
        return [] if has_fatal(problems) else [cloud.origin]
