//! The example Providers that users copy. Their egress rules are those of every test of the suite.

use anyhow::{Result, ensure};
use skysail_test_providers::{example, world};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_component_accepts_the_config_of_its_example() -> Result<()> {
    for guest in ["aws", "hetzner", "openstack", "vsphere"] {
        let problems = world::problems(guest, &example::config(guest)?).await?;
        ensure!(problems.is_empty(), "{guest}: {problems:?}");
    }
    Ok(())
}
