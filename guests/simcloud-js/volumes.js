// @ts-check
import { invalid, unavailable, unsupported } from "@skysail/provider";
import { load, zones } from "./api.js";

/** The CSI driver whose volumes are disks of this cloud. */
const ours = "simcloud.skysail.dev";

/** @type {import("@skysail/provider").PersistentVolumeLabels} */
export const persistentVolumeLabels = {
  /** One request for the disk; zones are cached. */
  labels(_cluster, { source, driver, handle }) {
    if (source !== "csi" || driver !== ours) {
      throw unsupported(`the volume belongs to ${`${source} ${driver}`.trim()}, not to the CSI driver ${ours}`);
    }
    if (!handle) throw invalid("csi.volumeHandle names no disk");
    const cloud = load();
    const disk = /** @type {{zone: string}} */ (cloud.get("v1", "volumes", handle).send().json());
    const zone = zones(cloud).find(({ name }) => name === disk.zone);
    // notFound is for the disk only: an unknown zone does not mean that the disk is gone.
    if (!zone) throw unavailable(`the cloud does not list the zone ${JSON.stringify(disk.zone)}`);
    return {
      "topology.kubernetes.io/zone": zone.name,
      "topology.kubernetes.io/region": zone.region,
    };
  },
};
