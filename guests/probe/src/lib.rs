//! Common code of the probes: a provider that works until the host asks for the master of the
//! cluster `attack`.
//!
//! Each probe attacks one limit of the sandbox; the test with the probe's name shows the reaction
//! of the host.

pub use skysail_guest_sdk as sdk;

pub mod http;
pub mod wasi;

/// Makes a probe: a name, and the attack, a function without arguments that returns a
/// [`sdk::Result`] of text.
#[macro_export]
macro_rules! probe {
    ($name:literal, $attack:expr) => {
        struct Probe;
        $crate::sdk::provider!(Probe: identity, clusters);

        impl $crate::sdk::Identity for Probe {
            fn describe() -> $crate::sdk::Info {
                $crate::sdk::Info::new($name, "0.1.0", "A probe of the sandbox")
            }
            fn check_config(_text: String) -> Vec<$crate::sdk::Problem> {
                Vec::new()
            }
            fn origins(_text: String) -> Vec<String> {
                Vec::new()
            }
        }

        impl $crate::sdk::legacy::Clusters for Probe {
            fn list() -> $crate::sdk::Result<Vec<String>> {
                Ok(Vec::new())
            }
            fn master(cluster: String) -> $crate::sdk::Result<String> {
                if cluster == "attack" { $attack() } else { Ok(cluster) }
            }
        }
    };
}
