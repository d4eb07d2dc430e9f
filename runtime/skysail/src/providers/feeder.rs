//! The task between a source and the slot that takes its offers.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt as _, Stream, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use skysail_host::slot::{Offer, Offered, Refusal, Slot, SlotStatus, SourceFailure};
use skysail_sources::{Archive, ArchiveError, Digest, Quarantined, SourceError};
use tokio::{
    select,
    sync::{Mutex, watch},
    task::{JoinError, JoinSet, spawn_blocking},
    time::{MissedTickBehavior, sleep, timeout},
};

use super::{FIRST_RELEASES, RETRY_PERIOD, Surroundings};
use crate::provider_file::ProviderSpec;

/// Offers the component of the source to the slot, now and after each change. Dropping the feeder
/// ends its task; the slot keeps its releases.
pub(super) struct Feeder {
    decided: watch::Receiver<bool>,
    heard: watch::Receiver<bool>,
    /// Held by the task that offers to the slot: an offer of a former feeder must not follow the
    /// order to forget its offers.
    turn: Arc<Mutex<()>>,
    /// Whether the slot has to forget its earlier offers, and has not done so yet.
    forgets: Arc<AtomicBool>,
    _task: JoinSet<()>,
}

impl Feeder {
    /// The feeder of a slot that has none.
    pub(super) fn start(slot: &Arc<Slot>, spec: &ProviderSpec, surroundings: &Surroundings) -> Self {
        Self::begin(slot, spec, surroundings, (Arc::default(), false))
    }

    /// Replaces the feeder. `another_source`: the earlier offers came from another source.
    pub(super) fn replace(
        &mut self,
        slot: &Arc<Slot>,
        spec: &ProviderSpec,
        surroundings: &Surroundings,
        another_source: bool,
    ) {
        let forgets = another_source || self.forgets.load(Ordering::Relaxed);
        *self = Self::begin(slot, spec, surroundings, (Arc::clone(&self.turn), forgets));
    }

    fn begin(
        slot: &Arc<Slot>,
        spec: &ProviderSpec,
        surroundings: &Surroundings,
        (turn, forgets): (Arc<Mutex<()>>, bool),
    ) -> Self {
        let forgets = Arc::new(AtomicBool::new(forgets));
        let (decide, decided) = watch::channel(false);
        let (hear, heard) = watch::channel(false);
        let Surroundings { archive, kubernetes } = surroundings;
        let bytes_max = spec.limits.component_bytes;
        let keeper = archive.as_ref().map(|archive| Keeper {
            archive: Arc::clone(archive),
            provider: spec.name.clone(),
            source: spec.source.kept_as(),
            bytes_max,
        });
        let mut task = JoinSet::new();
        // `Fleet::judge` checked that a source which needs a cluster has one.
        if let Some(offers) = spec.source.watch(bytes_max, kubernetes.as_ref()) {
            let (slot, status) = (Arc::clone(slot), slot.status());
            let (turn, forgets) = (Arc::clone(&turn), Arc::clone(&forgets));
            let guarded = Arc::clone(&slot);
            task.spawn(guarded.guard(async move {
                let _turn = turn.lock().await;
                if forgets.load(Ordering::Relaxed) {
                    slot.forget_offers().await;
                    forgets.store(false, Ordering::Relaxed);
                }
                fill(slot, status, offers, keeper, FeederProgress { decide, hear }).await;
            }));
        }
        Self { decided, heard, turn, forgets, _task: task }
    }

    /// Becomes true when the first offer serves, or is known not to serve.
    pub(super) fn decided(&self) -> watch::Receiver<bool> {
        self.decided.clone()
    }

    /// Becomes true when the source itself has reported an offer or a failure.
    pub(super) fn heard(&self) -> watch::Receiver<bool> {
        self.heard.clone()
    }
}

/// The longest wait for the disk at a provider's start: one that hangs must not keep the source
/// from being read.
const READ_MAX: Duration = Duration::from_secs(5);

/// The archive of a provider's last release, for a start at which its source does not answer.
#[derive(Clone)]
struct Keeper {
    archive: Arc<Archive>,
    provider: String,
    source: String,
    bytes_max: u64,
}

impl Keeper {
    /// The component that served last.
    async fn kept(&self) -> Option<skysail_sources::SourceFile> {
        let Self { archive, provider, source, bytes_max } = self.clone();
        self.read(move || archive.get(&provider, &source, bytes_max)).await.flatten()
    }

    /// The result of `read`, which reads the disk; `None` if the disk does not answer within
    /// [`READ_MAX`].
    async fn read<T: Send + 'static>(&self, read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        match timeout(READ_MAX, spawn_blocking(read)).await {
            // A task that was cancelled is a process that ends.
            Ok(read) => read.ok(),
            Err(_) => {
                tracing::warn!(
                    provider.name = self.provider,
                    "--state-dir: the disk does not answer within {} s, so the provider starts without its archived release and its list of rolled-back releases; check the disk",
                    READ_MAX.as_secs()
                );
                None
            }
        }
    }

    /// Keeps a component that has passed probation. Returns whether it is written; a failure is
    /// logged and stops nothing.
    async fn keep(&self, offer: skysail_sources::SourceFile) -> bool {
        let Self { archive, provider, source, .. } = self.clone();
        self.told(spawn_blocking(move || archive.put(&provider, &source, &offer)).await)
    }

    /// A release that was rolled back before this process began is not tried again by itself.
    async fn quarantine(&self, slot: &Slot) {
        let Self { archive, provider, .. } = self.clone();
        let quarantined = self.read(move || archive.quarantined(&provider)).await.unwrap_or_default();
        for Quarantined { digest, reason, retried } in quarantined {
            slot.quarantine(digest, reason, retried).await;
        }
    }

    async fn remember(&self, refusal: Refusal) -> bool {
        let Self { archive, provider, .. } = self.clone();
        let Refusal { digest, reason, retried, .. } = refusal;
        let quarantined = Quarantined { digest, reason, retried };
        self.told(spawn_blocking(move || archive.quarantine(&provider, quarantined)).await)
    }

    fn told(&self, written: Result<Result<(), ArchiveError>, JoinError>) -> bool {
        match written {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::warn!(provider.name = self.provider, "--state-dir: {:#}", anyhow::Error::from(error));
                false
            }
            // A task that was cancelled is a process that ends.
            Err(_) => false,
        }
    }
}

/// The digests of the components that the source has offered, latest last.
type Offers = VecDeque<String>;

/// The most digests of [`Offers`]. A release serves for minutes before it has passed, and a source
/// may offer others meanwhile.
const OFFERS_MAX: usize = 64;

/// Writes releases that passed probation, and releases that were rolled back, to the archive.
struct ArchiveWriter<F> {
    keeper: Keeper,
    /// An archived component serves at a start before the source has answered. The archive does
    /// not get a release of another source, or one without the signatures that the operator
    /// requires since; such a release may serve on.
    offers: watch::Receiver<Offers>,
    /// Returns the component of the active release. The source may have offered others since.
    active: F,
    /// Digest of the component in the archive.
    kept: Option<String>,
    /// The quarantine in the archive, as far as this has written it.
    remembered: Vec<Refusal>,
}

impl<F: Fn() -> Option<Offer>> ArchiveWriter<F> {
    const fn new(keeper: Keeper, offers: watch::Receiver<Offers>, active: F) -> Self {
        Self { keeper, offers, active, kept: None, remembered: Vec::new() }
    }

    /// Runs in a task of its own: a disk that hangs must not delay an offer.
    async fn run(mut self, mut status: watch::Receiver<SlotStatus>) {
        loop {
            let now = status.borrow_and_update().clone();
            self.offers.mark_unchanged();
            let is_written = self.follow(now).await;
            select! {
                changed = status.changed() => if changed.is_err() { return },
                Ok(()) = self.offers.changed() => {}
                () = sleep(RETRY_PERIOD), if !is_written => {}
            }
        }
    }

    /// Returns whether the archive has what it should have.
    async fn follow(&mut self, status: SlotStatus) -> bool {
        self.remembered.retain(|known| status.quarantine.contains(known));
        // A refusal without an origin was read from the archive.
        for refusal in status.quarantine.iter().filter(|refusal| !refusal.origin.is_empty()) {
            if self.remembered.contains(refusal) {
                continue;
            }
            // If the operator asks for the release and it passes, the archive has to be written
            // again.
            self.kept = None;
            if !self.keeper.remember(refusal.clone()).await {
                return false;
            }
            self.remembered.push(refusal.clone());
        }
        let Some(passed) = status.active.filter(|active| active.passed) else { return true };
        if self.kept.as_ref() == Some(&passed.digest) || !self.offers.borrow().contains(&passed.digest) {
            return true;
        }
        let Some(Offer { bytes, origin }) = (self.active)() else { return true };
        let digest = Digest::of(&bytes);
        // Another release may serve by now; its status comes next.
        if digest.to_string() == passed.digest {
            if !self.keeper.keep(skysail_sources::SourceFile { bytes, digest, origin }).await {
                return false;
            }
            self.kept = Some(passed.digest);
        }
        true
    }
}

/// What the feeder's task reports.
struct FeederProgress {
    decide: watch::Sender<bool>,
    hear: watch::Sender<bool>,
}

/// `status`: of the slot.
async fn fill(
    slot: Arc<Slot>,
    status: watch::Receiver<SlotStatus>,
    mut offers: impl Stream<Item = Result<skysail_sources::SourceFile, SourceError>> + Unpin,
    keeper: Option<Keeper>,
    FeederProgress { decide, hear }: FeederProgress,
) {
    let offered = watch::Sender::new(Offers::new());
    let note = |digest: Digest| {
        offered.send_modify(|offers| {
            offers.push_back(digest.to_string());
            if offers.len() > OFFERS_MAX {
                offers.pop_front();
            }
        });
    };
    if let Some(keeper) = &keeper {
        keeper.quarantine(&slot).await;
    }
    let kept = match &keeper {
        Some(keeper) if slot.serving().is_none() => keeper.kept().await.map(|kept| (keeper, kept)),
        Some(_) | None => None,
    };
    if let Some((keeper, kept)) = kept {
        tracing::info!(provider.name = keeper.provider, component.digest = %kept.digest, "offering the release that served before the restart, from the state folder");
        note(kept.digest);
        // The source comes after it, so that a new release has a predecessor. But a release that
        // cannot be loaded must not keep a fix from being offered.
        let result = timeout(FIRST_RELEASES, slot.offer(Offer { bytes: kept.bytes, origin: kept.origin })).await;
        decide.send_replace(matches!(result, Ok(Ok(_))));
    }
    let mut keeping = JoinSet::new();
    if let Some(keeper) = keeper {
        let slot = Arc::clone(&slot);
        let guarded = Arc::clone(&slot);
        let writer = ArchiveWriter::new(keeper, offered.subscribe(), move || slot.component());
        keeping.spawn(guarded.guard(writer.run(status)));
    }
    let mut retry = tokio::time::interval(RETRY_PERIOD);
    retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Requests to the slot. A newer offer ends the earlier ones, so these are few, and a fix does
    // not wait for them.
    let mut under_way = FuturesUnordered::<BoxFuture<'_, bool>>::new();
    loop {
        select! {
            report = offers.next() => match report {
                Some(Ok(offer)) => {
                    note(offer.digest);
                    let slot = Arc::clone(&slot);
                    // A refusal is in the slot's status, log line and metrics.
                    let offered = async move {
                        let offered = slot.offer(Offer { bytes: offer.bytes, origin: offer.origin }).await;
                        offered != Ok(Offered::Overtaken)
                    };
                    under_way.push(offered.boxed());
                }
                Some(Err(error)) => {
                    slot.source_failed(failure(&error)).await;
                    decide.send_replace(true);
                    hear.send_replace(true);
                }
                None => return,
            },
            Some(is_report) = under_way.next() => {
                if is_report {
                    decide.send_replace(true);
                    hear.send_replace(true);
                }
            }
            _ = retry.tick(), if under_way.is_empty() => under_way.push(try_again(Arc::clone(&slot)).boxed()),
        }
    }
}

/// Always false: a retry is no report of the source.
async fn try_again(slot: Arc<Slot>) -> bool {
    drop(slot.retry().await);
    false
}

fn failure(error: &SourceError) -> SourceFailure {
    SourceFailure { code: error.category(), reason: error.message() }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::RefCell,
        fs,
        sync::{Arc, atomic::Ordering},
        time::Duration,
    };

    use bytes::Bytes;
    use futures::channel::mpsc;
    use prometheus_client::{encoding::text::encode, registry::Registry};
    use skysail_host::{
        jail::{Compiler, JailCommand},
        slot::{ActiveStatus, Refusal, Slot, SlotServices, SlotStatus, Stage},
    };
    use skysail_sources::{Archive, Digest, Quarantined, SourceError, SourceFile};
    use tokio::{
        runtime,
        sync::{Mutex, watch},
        task::{JoinSet, spawn_blocking, yield_now},
        time::{self, timeout},
    };

    use super::{ArchiveWriter, Feeder, FeederProgress, Keeper, Offers, READ_MAX, RETRY_PERIOD, fill};
    use crate::{
        provider_file::{ComponentSource, ProviderSpec},
        providers::{Surroundings, services, slot_options},
    };

    /// Nothing takes this long that does not wait for what a test holds up.
    const PATIENCE: Duration = Duration::from_secs(60);
    /// As many looks at the metrics as take about this long.
    const LOOKS_MAX: u32 = 2_000_000;

    fn offer(text: &'static str) -> SourceFile {
        let bytes = Bytes::from_static(text.as_bytes());
        SourceFile { digest: Digest::of(&bytes), bytes, origin: "file p.wasm".to_owned() }
    }

    fn serving(offer: &SourceFile, passed: bool) -> SlotStatus {
        let active = ActiveStatus {
            swap: 1,
            digest: offer.digest.to_string(),
            origin: offer.origin.clone(),
            name: "p".to_owned(),
            version: "1".to_owned(),
            contract: "0.1.0",
            interfaces: Vec::new(),
            provider_id_schemes: Vec::new(),
            since_ms: 0,
            passed,
        };
        SlotStatus { active: Some(active), ..SlotStatus::default() }
    }

    fn keeper(archive: &Arc<Archive>) -> Keeper {
        let (provider, source) = ("p".to_owned(), "file p.wasm".to_owned());
        Keeper { archive: Arc::clone(archive), provider, source, bytes_max: 1 << 20 }
    }

    /// A component of which the first bytes are right, which is all that is read before the jail.
    fn component(number: u8) -> SourceFile {
        let bytes = Bytes::from([&b"\0asm\x0d\0\x01\0"[..], &[number]].concat());
        SourceFile { digest: Digest::of(&bytes), bytes, origin: "file p.wasm".to_owned() }
    }

    /// A slot whose jail never ends, with its feeder.
    struct World {
        slot: Arc<Slot>,
        /// As the slot reports it to the feeder.
        status: watch::Sender<SlotStatus>,
        source: mpsc::Sender<Result<SourceFile, SourceError>>,
        _task: JoinSet<()>,
    }

    impl World {
        fn new(archive: Option<&Arc<Archive>>) -> Self {
            let jail = JailCommand { program: "/bin/sleep".into(), args: vec!["3600".into()] };
            Self::with(jail, archive, &mut Registry::default())
        }

        fn with(jail: JailCommand, archive: Option<&Arc<Archive>>, registry: &mut Registry) -> Self {
            let services = SlotServices { compiler: Compiler::jailed(jail), ..services(registry).unwrap() };
            let options = slot_options(&ProviderSpec::closed("p").unwrap(), None).unwrap();
            let slot = Arc::new(Slot::new(services, options).unwrap());
            let (status, reported) = watch::channel(SlotStatus::default());
            let (source, offers) = mpsc::channel(1);
            let progress = FeederProgress { decide: watch::channel(false).0, hear: watch::channel(false).0 };
            let mut task = JoinSet::new();
            task.spawn(fill(Arc::clone(&slot), reported, offers, archive.map(keeper), progress));
            Self { slot, status, source, _task: task }
        }

        fn offer(&self, offer: &SourceFile) {
            self.source.clone().try_send(Ok(offer.clone())).unwrap();
        }

        /// Waits until the release is loaded; the earlier one must not have been refused before.
        async fn loads(&self, offer: &SourceFile) {
            let mut status = self.slot.status();
            let digest = offer.digest.to_string();
            let loads =
                |status: &SlotStatus| status.candidate.as_ref().is_some_and(|candidate| candidate.digest == digest);
            let status = timeout(PATIENCE, status.wait_for(loads)).await.unwrap().unwrap().clone();
            assert_eq!(status.refused, None, "it had to wait");
        }
    }

    /// The former feeder's task is busy between two awaits, where an abortion cannot end the task.
    /// The order to forget its offers outlives a feeder that never had its turn.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_feeder_begins_only_after_the_former_one_has_ended() {
        let World { slot, .. } = World::new(None);
        let (begun, begins) = std::sync::mpsc::channel();
        let (go_on, held) = std::sync::mpsc::channel::<()>();
        let (_, never) = watch::channel(false);
        let (turn, mut task) = (Arc::<Mutex<()>>::default(), JoinSet::new());
        let former = Arc::clone(&turn);
        task.spawn(async move {
            let _turn = former.lock().await;
            begun.send(()).unwrap();
            held.recv().unwrap_err();
        });
        begins.recv().unwrap();
        let mut feeder = Feeder { decided: never.clone(), heard: never, turn, forgets: Arc::default(), _task: task };
        let source = ComponentSource::File("/nowhere/p.wasm".into());
        let spec = ProviderSpec { source, ..ProviderSpec::closed("p").unwrap() };
        for another_source in [true, false] {
            feeder.replace(&slot, &spec, &Surroundings { archive: None, kubernetes: None }, another_source);
            let mut heard = feeder.heard();
            assert!(timeout(Duration::from_millis(200), heard.wait_for(|heard| *heard)).await.is_err());
            assert!(feeder.forgets.load(Ordering::Relaxed));
        }
        drop(go_on);
        timeout(PATIENCE, feeder.heard().wait_for(|heard| *heard)).await.unwrap().unwrap();
        assert!(!feeder.forgets.load(Ordering::Relaxed));
    }

    /// The clock of the test goes on only where no task has anything to do.
    #[tokio::test(start_paused = true)]
    async fn a_fix_does_not_wait_for_a_release_that_is_still_loaded() {
        let world = World::new(None);
        for number in 1..3 {
            world.offer(&component(number));
            world.loads(&component(number)).await;
        }
    }

    /// The jail's program is missing, so the machine is at fault.
    #[tokio::test(start_paused = true)]
    async fn a_release_that_the_machine_could_not_judge_is_tried_again_every_30_seconds() {
        let mut registry = Registry::default();
        let jail = JailCommand { program: "/nowhere/skysail".into(), args: Vec::new() };
        let world = World::with(jail, None, &mut registry);
        let tries = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            let counts = text.lines().filter(|line| line.starts_with("skysail_slot_refusals_total{"));
            counts.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u32>().unwrap()).sum::<u32>()
        };
        // The first tick of the feeder's clock is over, and finds nothing to try.
        time::sleep(Duration::from_secs(1)).await;
        world.offer(&component(1));
        for seen in [1, 2, 3, 4] {
            // The clock of the test stands still while this task is ready and the jail is started.
            let mut looks = 0;
            while tries() < seen {
                looks += 1;
                assert!(looks < LOOKS_MAX, "{} tries", tries());
                yield_now().await;
            }
            time::sleep(RETRY_PERIOD * 2 / 3).await;
            assert_eq!(tries(), seen, "it is not tried again before its time");
            time::sleep(RETRY_PERIOD / 3 + Duration::from_millis(1)).await;
        }
        let status = world.slot.status().borrow().clone();
        assert_eq!(status.refused.unwrap().code, "CompileUnavailable");
    }

    #[tokio::test(start_paused = true)]
    async fn a_fix_does_not_wait_for_an_archived_release_that_cannot_be_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let archive = Arc::new(Archive::open(folder.path().to_owned(), 1 << 20).unwrap());
        archive.put("p", "file p.wasm", &component(1)).unwrap();
        let world = World::new(Some(&archive));
        world.loads(&component(1)).await;
        world.offer(&component(2));
        world.loads(&component(2)).await;
    }

    /// The only blocking thread is occupied, as by a write to a disk that does not answer.
    #[test]
    fn a_fix_does_not_wait_for_the_archive() {
        let folder = tempfile::tempdir().unwrap();
        let archive = Arc::new(Archive::open(folder.path().to_owned(), 1 << 20).unwrap());
        let runtime = runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
        runtime.unwrap().block_on(async {
            let world = World::new(Some(&archive));
            world.offer(&component(1));
            world.loads(&component(1)).await;
            let (free, busy) = std::sync::mpsc::channel::<()>();
            let hangs = spawn_blocking(move || busy.recv());
            world.status.send_replace(serving(&component(1), true));
            for _ in 0..100 {
                yield_now().await;
            }
            world.offer(&component(2));
            world.loads(&component(2)).await;
            assert!(archive.get("p", "file p.wasm", 1 << 20).is_none());
            free.send(()).unwrap();
            hangs.await.unwrap().unwrap();
        });
    }

    /// The same before the source has offered anything.
    #[test]
    fn a_provider_starts_although_the_archive_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let archive = Arc::new(Archive::open(folder.path().to_owned(), 1 << 20).unwrap());
        archive.put("p", "file p.wasm", &component(1)).unwrap();
        let runtime = runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
        runtime.unwrap().block_on(async {
            let (free, busy) = std::sync::mpsc::channel::<()>();
            let hangs = spawn_blocking(move || busy.recv());
            time::pause();
            let world = World::new(Some(&archive));
            world.offer(&component(2));
            // The quarantine, and the component.
            for _ in 0..2 {
                for _ in 0..100 {
                    yield_now().await;
                }
                time::advance(READ_MAX + Duration::from_millis(1)).await;
            }
            time::resume();
            world.loads(&component(2)).await;
            free.send(()).unwrap();
            hangs.await.unwrap().unwrap();
        });
    }

    /// The component as the slot has it.
    fn active(SourceFile { bytes, origin, .. }: &SourceFile) -> Option<super::Offer> {
        Some(super::Offer { bytes: bytes.clone(), origin: origin.clone() })
    }

    fn offers(offers: &[&SourceFile]) -> watch::Receiver<Offers> {
        watch::channel(offers.iter().map(|offer| offer.digest.to_string()).collect()).1
    }

    /// For example an unsigned release that serves, after the operator has required signatures: the
    /// archive would let it serve after a restart, before the registry is asked.
    #[tokio::test]
    async fn a_release_that_the_source_did_not_offer_is_not_archived_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let archive = Arc::new(Archive::open(folder.path().to_owned(), 1 << 20).unwrap());
        let (sender, offers) = watch::channel(Offers::new());
        let (reports, status) = watch::channel(serving(&offer("first"), true));
        let mut writer = ArchiveWriter::new(keeper(&archive), offers, || active(&offer("first")));
        assert!(writer.follow(status.borrow().clone()).await);
        assert!(archive.get("p", "file p.wasm", 1 << 20).is_none());
        // The source offers the same component: the slot's status does not change.
        let mut running = JoinSet::new();
        running.spawn(writer.run(status));
        sender.send_modify(|offers| offers.push_back(offer("first").digest.to_string()));
        let archived = async {
            while archive.get("p", "file p.wasm", 1 << 20).is_none() {
                yield_now().await;
            }
        };
        timeout(PATIENCE, archived).await.unwrap();
        drop(reports);
    }

    #[tokio::test]
    async fn a_state_that_could_not_be_archived_is_archived_with_the_next_status() {
        let folder = tempfile::tempdir().unwrap();
        let archive = Arc::new(Archive::open(folder.path().to_owned(), 1 << 20).unwrap());
        let first = offer("first");
        let mut writer = ArchiveWriter::new(keeper(&archive), offers(&[&first]), || active(&first));
        let rolled_back = Refusal {
            digest: offer("second").digest.to_string(),
            origin: "file p.wasm".to_owned(),
            stage: Stage::Active,
            code: "RolledBack",
            reason: "why".to_owned(),
            lasting: true,
            retried: false,
        };
        let status = SlotStatus { quarantine: vec![rolled_back], ..serving(&first, true) };
        // A file in the folder's place, which root cannot write to either.
        fs::rename(folder.path(), folder.path().with_extension("away")).unwrap();
        fs::write(folder.path(), "").unwrap();
        assert!(!writer.follow(status.clone()).await, "the disk is full");
        fs::remove_file(folder.path()).unwrap();
        fs::rename(folder.path().with_extension("away"), folder.path()).unwrap();
        assert!(writer.follow(status).await);
        let archived = archive.get("p", "file p.wasm", 1 << 20).map(|offer| offer.digest);
        assert_eq!((archived, archive.quarantined("p").len()), (Some(first.digest), 1));
    }

    /// The operator moves the tag back, or edits the source, before the disk is repaired. Then the
    /// status shows no refusal any more.
    #[tokio::test]
    async fn a_rollback_that_could_not_be_written_is_written_after_the_next_offer() {
        let folder = tempfile::tempdir().unwrap();
        let archive = Arc::new(Archive::open(folder.path().to_owned(), 1 << 20).unwrap());
        let refusals = ["second", "third"].map(|name| Refusal {
            digest: offer(name).digest.to_string(),
            origin: "file p.wasm".to_owned(),
            stage: Stage::Active,
            code: "RolledBack",
            reason: "why".to_owned(),
            lasting: true,
            retried: false,
        });
        let status = SlotStatus { quarantine: refusals.to_vec(), refused: None, ..SlotStatus::default() };
        let mut writer = ArchiveWriter::new(keeper(&archive), offers(&[]), || None);
        assert!(writer.follow(status).await);
        assert_eq!(archive.quarantined("p").len(), 2);
    }

    /// For example after new settings ended its probation: a restart has to begin with its
    /// predecessor, and to refuse it where it was rolled back before.
    #[tokio::test]
    async fn a_release_that_serves_and_has_not_passed_replaces_nothing_in_the_archive() {
        let folder = tempfile::tempdir().unwrap();
        let archive = Arc::new(Archive::open(folder.path().to_owned(), 1 << 20).unwrap());
        let (first, second) = (offer("first"), offer("second"));
        let refusal = Quarantined { digest: second.digest.to_string(), reason: "why".to_owned(), retried: false };
        archive.quarantine("p", refusal.clone()).unwrap();
        let serves = RefCell::new(first.clone());
        let mut writer = ArchiveWriter::new(keeper(&archive), offers(&[&first, &second]), || active(&serves.borrow()));
        let archived = || archive.get("p", "file p.wasm", 1 << 20).map(|offer| offer.bytes);

        writer.follow(serving(&first, true)).await;
        assert_eq!(archived(), Some(first.bytes.clone()));
        serves.replace(second.clone());
        writer.follow(serving(&second, false)).await;
        assert_eq!((archived(), archive.quarantined("p")), (Some(first.bytes), vec![refusal]));
        writer.follow(serving(&second, true)).await;
        assert_eq!((archived(), archive.quarantined("p")), (Some(second.bytes), vec![]));
    }
}
