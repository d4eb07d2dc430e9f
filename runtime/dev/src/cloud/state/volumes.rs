//! Disks.

use super::{State, checked_tags, checked_text, not_found, room};
use crate::cloud::{
    error::CloudError,
    model::{NewVolume, Volume},
};

/// Largest disk, in GiB.
const SIZE_GIB_MAX: u32 = 65_536;

impl State {
    pub(in crate::cloud) fn create_volume(&mut self, new: NewVolume) -> Result<Volume, CloudError> {
        let NewVolume { name, zone, size_gib, tags } = new;
        checked_text("the name of a volume", &name)?;
        checked_tags(&tags)?;
        room("volumes", self.volumes.len())?;
        if !(1..=SIZE_GIB_MAX).contains(&size_gib) {
            return Err(CloudError::Invalid(format!("a volume has 1 to {SIZE_GIB_MAX} GiB, not {size_gib}")));
        }
        let zone = self.zone_named(zone)?;
        let volume = Volume { id: self.next_id("d"), name, zone, size_gib, tags };
        self.tell("created", "volume", (&volume.id, &volume.name), &volume.tags);
        self.volumes.insert(volume.id.clone(), volume.clone());
        Ok(volume)
    }

    pub(in crate::cloud) fn delete_volume(&mut self, id: &str) -> Result<(), CloudError> {
        let volume = self.volumes.remove(id).ok_or_else(|| not_found("volume", id))?;
        self.forget(id);
        self.tell("deleted", "volume", (id, &volume.name), &volume.tags);
        Ok(())
    }
}
