//! Tests of source, jail, admission and slot together: a file on disk becomes the serving release.

use std::{fs, os::unix::fs::symlink, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use skysail_host::{
    CallRecorder, Engine, Limits, Panics, SandboxOptions,
    jail::Compiler,
    slot::{Offer, Slot, SlotMetrics, SlotOptions, SlotServices, SlotStatus},
};
use skysail_sources::{Digest, FileSource, FileSourceSettings};
use tempfile::TempDir;
use tokio::{task::JoinSet, time};

use crate::{components::marked, jail::command};

/// Timeout of a wait, longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A slot that gets its offers from a watched file, and the folder of that file.
struct Fed {
    slot: Arc<Slot>,
    dir: TempDir,
    _feeder: JoinSet<()>,
}

impl Fed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sandbox =
            SandboxOptions { name: "cloud".to_owned(), limits: Limits::default(), config: String::new(), http: None };
        let services = SlotServices {
            engine: Engine::on_demand().unwrap(),
            recorder: CallRecorder::default(),
            compiler: Compiler::jailed(command()),
            metrics: SlotMetrics::default(),
            panics: Panics::default(),
        };
        let options = SlotOptions::new(sandbox);
        let slot = Arc::new(Slot::new(services, options).unwrap());
        // Longer than any test, so that changes are found only by notification.
        let settings = FileSourceSettings { poll: Duration::from_secs(3600), ..FileSourceSettings::default() };
        let mut offers = FileSource::new(dir.path().join("provider.wasm"), settings).watch();
        let mut feeder = JoinSet::new();
        feeder.spawn({
            let slot = Arc::clone(&slot);
            async move {
                while let Some(report) = offers.next().await {
                    if let Ok(offer) = report {
                        // The tests read the result from the status.
                        drop(slot.offer(Offer { bytes: offer.bytes, origin: offer.origin }).await);
                    }
                }
            }
        });
        Self { slot, dir, _feeder: feeder }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("provider.wasm")
    }

    async fn until(&self, condition: impl FnMut(&SlotStatus) -> bool) -> SlotStatus {
        let mut status = self.slot.status();
        let found = time::timeout(PATIENCE, status.wait_for(condition)).await;
        found.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {:?}", self.slot.status().borrow())).unwrap().clone()
    }

    async fn serves(&self, component: &[u8]) {
        let digest = Digest::of(component).to_string();
        let status = self.until(|status| status.active.as_ref().is_some_and(|active| active.digest == digest)).await;
        assert_eq!(status.refused, None);
    }
}

/// The example provider with another digest.
fn dummy(mark: u8) -> Bytes {
    marked("dummy", mark).into()
}

#[tokio::test]
async fn a_rename_over_the_file_becomes_the_serving_release() {
    let fed = Fed::new();
    for mark in 0..3 {
        let partial = fed.dir.path().join("partial");
        fs::write(&partial, dummy(mark)).unwrap();
        fs::rename(&partial, fed.path()).unwrap();
        fed.serves(&dummy(mark)).await;
    }
    assert_eq!(fed.slot.status().borrow().swaps, 3);
}

#[tokio::test]
async fn a_copy_in_place_becomes_the_serving_release_even_if_the_copy_stalls() {
    let fed = Fed::new();
    fs::write(fed.path(), dummy(0)).unwrap();
    fed.serves(&dummy(0)).await;
    let whole = dummy(1);
    fs::write(fed.path(), &whole[..whole.len() / 2]).unwrap();
    let status = fed.until(|status| status.refused.is_some()).await;
    assert_eq!(status.refused.unwrap().code, "Truncated");
    assert_eq!(
        status.active.unwrap().digest,
        Digest::of(&dummy(0)).to_string(),
        "the previous release must keep serving"
    );
    fs::write(fed.path(), &whole).unwrap();
    fed.serves(&whole).await;
}

#[tokio::test]
async fn an_update_of_a_mounted_config_map_becomes_the_serving_release() {
    let fed = Fed::new();
    let mount = fed.dir.path();
    symlink("..data/provider.wasm", fed.path()).unwrap();
    for mark in 0..3 {
        let generation = format!("..2026_{mark}");
        fs::create_dir(mount.join(&generation)).unwrap();
        fs::write(mount.join(&generation).join("provider.wasm"), dummy(mark)).unwrap();
        symlink(&generation, mount.join("..data_tmp")).unwrap();
        fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
        fed.serves(&dummy(mark)).await;
    }
}
