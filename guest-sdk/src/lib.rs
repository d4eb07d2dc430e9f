//! The SDK for authors of Skysail providers: the contract in Rust, and helpers for every provider.
//!
//! A provider is a type that implements [`Identity`] and the other traits that the cloud supports;
//! [`provider!`] makes it a component that exports exactly these interfaces. The host reads the
//! exports to know what the provider supports, so there is nothing to stub.
//!
//! ```
//! use skysail_guest_sdk::{Identity, Info, Problem, provider};
//!
//! struct Example;
//! provider!(Example: identity);
//!
//! impl Identity for Example {
//!     fn describe() -> Info {
//!         Info::new("example", "0.1.0", "Does nothing yet")
//!     }
//!     fn check_config(_text: String) -> Vec<Problem> {
//!         Vec::new()
//!     }
//!     fn origins(_text: String) -> Vec<String> {
//!         Vec::new()
//!     }
//! }
//! ```
//!
//! The functions that call the host ([`http`], [`config::text`], [`clock`], [`cache`], [`events`])
//! work inside the sandbox only; on any other target they panic with a message that names the
//! function. All other functions are plain Rust and can be tested natively; [`NodeSet::of`] makes
//! the nodes of a test, and [`log`] writes to standard output there.
//!
//! This crate must stay small: its code is part of every component, and a ConfigMap has at most 1
//! MiB.

/// The provider of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod annotations;
#[doc(hidden)]
pub mod bindings;
pub mod cache;
mod cidr;
pub mod clock;
pub mod config;
pub mod diff;
mod error;
pub mod events;
pub mod http;
mod identity;
pub mod instances;
pub mod instances_v1;
pub mod labels;
pub mod legacy;
pub mod log;
mod native;
pub mod nodes;
pub mod paging;
#[doc(hidden)]
pub mod panics;
pub mod provider_id;
mod service;
pub mod text;
pub mod xml;

pub use self::{
    bindings::{
        identity::{Guest as Identity, Info, Problem, Severity},
        imports::skysail::provider::types::{
            AddressKind, Error, Ingress, IpFamily, IpFamilyPolicy, IpMode, LoadBalancerStatus, Node, NodeAddress, Pair,
            PortStatus, Protocol, Retry, Service, ServicePort, SessionAffinity, TrafficPolicy,
        },
        instances::{Detail, Guest as Instances, Instance},
        load_balancer_inventory::{Guest as LoadBalancerInventory, Owned},
        load_balancers::Guest as LoadBalancers,
        persistent_volume_labels::{Guest as PersistentVolumeLabels, PersistentVolume},
        routes::{Guest as Routes, NewRoute, Route, Target},
    },
    cidr::Cidr,
    error::{Absent, Result},
    nodes::NodeSet,
};

/// Makes a component of a type: `provider!(Example: identity, load_balancers, instances)`.
///
/// The list names the interfaces that the component exports; the type must implement the trait of
/// each. `identity` is required: the host refuses a component without it. A panic becomes a line in
/// the host's log before the call traps. On targets other than `wasm32` nothing is exported and
/// only the traits are checked, so that a provider's own tests run natively.
#[macro_export]
macro_rules! provider {
    ($provider:ident: $($interface:ident),+ $(,)?) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            $( $crate::bindings::$interface::export!($provider with_types_in $crate::bindings::$interface); )+
            // Constructors run once, before the first exported function.
            #[used]
            #[unsafe(link_section = ".init_array")]
            static INSTALL_PANIC_HOOK: extern "C" fn() = $crate::panics::install;
        };
        #[cfg(not(target_arch = "wasm32"))]
        const _: () = {
            $(
                const _: () = {
                    const fn implements<T: $crate::bindings::$interface::Guest>() {}
                    implements::<$provider>();
                };
            )+
        };
    };
}
