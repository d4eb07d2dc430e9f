//! A Skysail provider over the APIs of VMware vCenter Server: virtual machines as nodes, and their
//! zones and regions by tags.
//!
//! The host logs in and adds the sessions; this crate never sees the account. The pure parts
//! (`settings`, `soap`, `vim`, `lookup`, `addresses`, `machines`, `zones`) are tested natively;
//! `vcenter`, `memory` and `describe` call the host.

mod addresses;
mod describe;
#[cfg(test)]
mod fixture;
mod guest_os;
mod lookup;
mod machines;
mod memory;
mod settings;
mod soap;
mod vcenter;
mod vim;
mod zones;

use skysail_guest_sdk::{Detail, Identity, Info, Instance, Instances, NodeSet, Problem, Result, provider};

/// Scheme of `spec.providerID`, and the provider's name.
const SCHEME: &str = "vsphere";

struct Provider;

provider!(Provider: identity, instances);

impl Identity for Provider {
    fn describe() -> Info {
        Info::new(SCHEME, env!("CARGO_PKG_VERSION"), "Virtual machines of vCenter Server, with zones by tags")
    }

    fn check_config(text: String) -> Vec<Problem> {
        settings::parse(&text).problems()
    }

    fn origins(text: String) -> Vec<String> {
        let settings = settings::parse(&text).config();
        settings.into_iter().flat_map(|settings| settings.vcenters).map(|vcenter| vcenter.origin).collect()
    }
}

impl Instances for Provider {
    fn describe(nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
        describe::describe(nodes, detail)
    }
}
