"""Tests of the provider, with a host in memory."""

from unittest import TestCase

from provider import Identity, Instances, LoadBalancers

from skysail_provider import Node
from skysail_provider.testing import Host, nodes, service


class ProviderTest(TestCase):
    """The provider of the pool."""

    def test_a_load_balancer_has_an_address_of_the_pool(self) -> None:
        with Host("[LoadBalancer]\npool = 10.0.0.0/30\n"):
            status = LoadBalancers().ensure("cluster", service(), nodes())
        self.assertRegex(status.ingress[0].ip or "", r"^10\.0\.0\.[0-3]$")

    def test_a_wrong_pool_is_refused_with_its_line(self) -> None:
        (problem,) = Identity().check_config("[LoadBalancer]\npool = many\n")
        found = (problem.severity, problem.line, problem.key)
        self.assertEqual(found, ("fatal", 2, "LoadBalancer.pool"))

    def test_every_node_has_an_instance(self) -> None:
        (instance,) = Instances().describe(nodes(Node("a")), "metadata")
        assert not isinstance(instance, Exception)
        self.assertEqual(instance.provider_id, "example://a")
