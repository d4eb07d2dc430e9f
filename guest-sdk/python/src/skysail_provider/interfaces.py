"""The interfaces of a provider: a provider is a module with one subclass of each that it has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from .errors import ProviderError
from .types import (
    Detail,
    Info,
    Instance,
    LoadBalancerStatus,
    NewRoute,
    NodeSet,
    Owned,
    PersistentVolume,
    Problem,
    Route,
    Service,
    ServiceRef,
)


class Identity(ABC):
    """Every provider has it. Its functions send no request."""

    @abstractmethod
    def describe(self) -> Info: ...

    @abstractmethod
    def check_config(self, text: str) -> Sequence[Problem]:
        """Every problem of a cloud-config, with the line of each."""

    @abstractmethod
    def origins(self, text: str) -> Sequence[str]:
        """The origins of the cloud's API, which the host compares with the egress rules."""


class Instances(ABC):
    """The machines behind nodes."""

    @abstractmethod
    def describe(self, nodes: NodeSet, detail: Detail) -> Sequence[Instance | ProviderError]:
        """One result for each node, in the order of the nodes.

        `NotFound` deletes the node: only where the cloud confirms that there is no such machine. A
        raised error is about all nodes.
        """


class LoadBalancers(ABC):
    """The load balancers of Services."""

    @abstractmethod
    def name(self, cluster: str, service: Service) -> str:
        """The name of the load balancer in the cloud."""

    @abstractmethod
    def get(self, cluster: str, service: Service) -> LoadBalancerStatus | None:
        """None where there is no load balancer."""

    @abstractmethod
    def ensure(self, cluster: str, service: Service, nodes: NodeSet) -> LoadBalancerStatus: ...

    @abstractmethod
    def update(self, cluster: str, service: Service, nodes: NodeSet) -> None:
        """Changes the nodes of an existing load balancer, and nothing else."""

    @abstractmethod
    def ensure_deleted(self, cluster: str, service: Service) -> None:
        """Succeeds where there is nothing to delete."""


class LoadBalancerInventory(ABC):
    """Load balancers without their Services."""

    @abstractmethod
    def list(self, cluster: str) -> Sequence[Owned]: ...

    @abstractmethod
    def delete(self, cluster: str, name: str, service: ServiceRef | None) -> None:
        """Deletes a load balancer that `list` returned, unless another Service uses it by now.

        The Service is the one that was listed.
        """


class Routes(ABC):
    """Routes to the pod CIDRs of nodes."""

    @abstractmethod
    def list(self, cluster: str) -> Sequence[Route]: ...

    @abstractmethod
    def create(self, cluster: str, routes: Sequence[NewRoute]) -> Sequence[ProviderError | None]:
        """One result for each route, in order: None for success."""

    @abstractmethod
    def delete(self, cluster: str, routes: Sequence[Route]) -> Sequence[ProviderError | None]:
        """One result for each route, in order: None for success."""


class PersistentVolumeLabels(ABC):
    """The topology of volumes."""

    @abstractmethod
    def labels(self, cluster: str, volume: PersistentVolume) -> dict[str, str]: ...
