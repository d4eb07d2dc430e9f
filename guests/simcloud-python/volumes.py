"""The topology of volumes."""

from api import load, zones

from skysail_provider import (
    Invalid,
    PersistentVolume,
    PersistentVolumeLabels,
    Unavailable,
    Unsupported,
)
from skysail_provider.text import quoted

# The CSI driver whose volumes are disks of this cloud.
OURS = "simcloud.skysail.dev"


class Volumes(PersistentVolumeLabels):
    """The topology labels of volumes."""

    def labels(self, _cluster: str, volume: PersistentVolume) -> dict[str, str]:
        """One request for the disk; zones are cached."""
        if volume.source != "csi" or volume.driver != OURS:
            owner = f"{volume.source} {volume.driver}".strip()
            raise Unsupported(f"the volume belongs to {owner}, not to the CSI driver {OURS}")
        if not volume.handle:
            raise Invalid("csi.volumeHandle names no disk")
        cloud = load()
        zone = cloud.get("v1", "volumes", volume.handle).send().json()["zone"]
        region = zones(cloud).get(zone)
        # NotFound is for the disk only: an unknown zone does not mean that the disk is gone.
        if region is None:
            raise Unavailable(f"the cloud does not list the zone {quoted(zone)}")
        return {"topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": region}
