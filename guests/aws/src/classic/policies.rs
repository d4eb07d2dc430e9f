//! Policies of a Classic Load Balancer: the proxy protocol of its backends, and the ciphers of its
//! encrypted listeners.

use skysail_guest_sdk::Result;

use super::ClassicTask;
use crate::wire::elb::LoadBalancer;

const PROXY_PROTOCOL: &str = "k8s-proxyprotocol-enabled";
const DUPLICATE: [&str; 2] = ["DuplicatePolicyName", "DuplicatePolicyNameException"];

impl ClassicTask<'_> {
    /// Makes the policies that are missing, and sets those that differ.
    pub(super) fn policies(&self, found: &LoadBalancer) -> Result<()> {
        self.proxy_protocol(found)?;
        self.ssl(found)
    }

    fn create_policy(&self, found: &LoadBalancer, name: &str, kind: &str, attribute: (&str, &str)) -> Result<()> {
        if found.policies.iter().any(|policy| policy == name) {
            return Ok(());
        }
        let call = self
            .of("CreateLoadBalancerPolicy")
            .set("PolicyName", name)
            .set("PolicyTypeName", kind)
            .set("PolicyAttributes.member.1.AttributeName", attribute.0)
            .set("PolicyAttributes.member.1.AttributeValue", attribute.1);
        self.write_once(call, &DUPLICATE)
    }

    /// A policy of a port stays when its listener is removed, so ports without a listener are set,
    /// too.
    fn proxy_protocol(&self, found: &LoadBalancer) -> Result<()> {
        let has_it = |policies: &[String]| policies.iter().any(|policy| policy == PROXY_PROTOCOL);
        let of = |port: u16| found.backends.iter().any(|(there, policies)| *there == port && has_it(policies));
        let mut ports: Vec<_> = self.plan.listeners.iter().map(|listener| listener.instance_port).collect();
        let left =
            found.backends.iter().map(|(port, _)| *port).filter(|port| !ports.contains(port)).collect::<Vec<_>>();
        ports.retain(|port| of(*port) != self.plan.proxy_protocol);
        if self.plan.proxy_protocol && !ports.is_empty() {
            self.create_policy(found, PROXY_PROTOCOL, "ProxyProtocolPolicyType", ("ProxyProtocol", "true"))?;
        }
        let wanted = if self.plan.proxy_protocol { &[PROXY_PROTOCOL][..] } else { &[] };
        let stale = left.into_iter().filter(|port| of(*port)).map(|port| (port, &[][..]));
        for (port, policies) in ports.into_iter().map(|port| (port, wanted)).chain(stale) {
            let call = self.of("SetLoadBalancerPoliciesForBackendServer").set("InstancePort", port);
            // An empty list is a parameter without a value.
            let empty = policies.is_empty().then_some("");
            self.write(call.list("PolicyNames", policies).set_opt("PolicyNames", empty))?;
        }
        Ok(())
    }

    fn ssl(&self, found: &LoadBalancer) -> Result<()> {
        let Some(reference) = &self.plan.ssl_policy else { return Ok(()) };
        let name = format!("k8s-SSLNegotiationPolicy-{reference}");
        let is_encrypted = |protocol: &str| matches!(protocol, "SSL" | "HTTPS");
        let has_it =
            |port: u16| found.listeners.iter().any(|(there, policies)| there.port == port && policies.contains(&name));
        let encrypted = self.plan.listeners.iter().filter(|listener| is_encrypted(&listener.protocol));
        let differing: Vec<_> = encrypted.map(|listener| listener.port).filter(|port| !has_it(*port)).collect();
        if differing.is_empty() {
            return Ok(());
        }
        self.create_policy(found, &name, "SSLNegotiationPolicyType", ("Reference-Security-Policy", reference))?;
        for port in differing {
            let call = self.of("SetLoadBalancerPoliciesOfListener").set("LoadBalancerPort", port);
            self.write(call.list("PolicyNames", [&name]))?;
        }
        Ok(())
    }
}
