//! The sizes of the providers: a ConfigMap takes 1 MiB, with the names of its keys.

use anyhow::{Result, ensure};
use skysail_test_providers::component;

/// Each provider, and its largest size in KiB: little more than today's, so that growth is noticed.
/// The providers for OpenStack and AWS are the largest of the vendors' managers.
const KIB_MAX: [(&str, usize); 6] =
    [("aws", 1000), ("hetzner", 720), ("incus", 600), ("openstack", 1000), ("simcloud", 520), ("vsphere", 680)];

#[test]
fn each_provider_fits_into_a_config_map_without_compression() -> Result<()> {
    for (name, kib_max) in KIB_MAX {
        let bytes = component::built(name)?.len();
        ensure!(bytes <= kib_max << 10, "{name}.wasm has {bytes} bytes, more than {kib_max} KiB");
    }
    Ok(())
}
