//! The zones of disks.

use serde::Deserialize;
use skysail_guest_sdk::{Absent as _, Error, Pair, PersistentVolume, Result};

use crate::{api::Cloud, machines};

/// The CSI driver whose volumes are disks of this cloud.
const DRIVER: &str = "simcloud.skysail.dev";

#[derive(Deserialize)]
struct Disk {
    zone: String,
}

/// One request for the disk; zones are cached.
pub(crate) fn labels(cloud: &Cloud, volume: &PersistentVolume) -> Result<Vec<Pair>> {
    if volume.source != "csi" || volume.driver != DRIVER {
        let whose = format!("{} {}", volume.source, volume.driver);
        return Err(Error::Unsupported(format!(
            "the volume belongs to {}, not to the CSI driver {DRIVER}",
            whose.trim_end()
        )));
    }
    if volume.handle.is_empty() {
        return Err(Error::Invalid("csi.volumeHandle names no disk".to_owned()));
    }
    let disk: Disk = cloud.api.get(&["v1", "volumes", &volume.handle]).send()?.json()?;
    // `not-found` is for the disk only: an unknown zone does not mean that the disk is gone.
    let zone = machines::zone(cloud, &disk.zone).absent_ok()?;
    let zone = zone.ok_or_else(|| Error::Unavailable(format!("the cloud does not list the zone {:?}", disk.zone)))?;
    let label = |key: &str, value| (format!("topology.kubernetes.io/{key}"), value);
    Ok(vec![label("zone", zone.failure_domain), label("region", zone.region)])
}
