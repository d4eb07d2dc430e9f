//! `skysail replay`: gives recorded calls to a component, and compares.
//!
//! # Flow
//! for each recording: read → load the component under the recording's limits and cloud-config →
//! call → compare (`replay/comparison.rs`); then print.

pub(super) mod comparison;

use std::{fmt, path::Path, sync::Arc};

use anyhow::{Context as _, anyhow};
use prometheus_client::registry::Registry;
use skysail_host::{
    CallRecord, CallRecorder, Limits, SandboxOptions, SandboxedProvider, describe,
    recording::Recording,
    slot::{Offer, SlotServices},
};
use skysail_provider::{Call, Info, NODES_PER_PAGE};

use self::comparison::Comparison;
use crate::{
    args::{LoggingFormat, ReplayArgs},
    commands::{
        call::{
            component,
            functions::{self, Function},
            identity,
        },
        recordings, symbolize,
    },
    exit::{MarkExt as _, Reason},
    output, providers, telemetry,
};

/// The largest component that is read: as in a provider file.
pub(super) const COMPONENT_BYTES_MAX: u64 = 256 << 20;

/// Replays the recordings.
///
/// # Errors
/// A recording cannot be replayed, or the component is refused; [`Reason::Changes`] if a request or
/// an answer differs.
pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log.log, LoggingFormat::Text).or_exit(Reason::Usage)?;
    tokio::runtime::Runtime::new().context("cannot start tokio")?.block_on(replay(args))
}

async fn replay(args: &ReplayArgs) -> anyhow::Result<()> {
    let files = recordings::files(&args.recordings).or_exit(Reason::Usage)?;
    // The limits of each recording apply to the loading of the component.
    let offer = component(&args.component, COMPONENT_BYTES_MAX)?;
    let mut services = providers::services(&mut Registry::default())?;
    let symbols = symbolize::of(&args.symbols, &args.component, &offer.bytes)?;
    services.recorder = services.recorder.with_symbols(symbols);
    let mut comparisons = Vec::with_capacity(files.len());
    for file in &files {
        let compared = compared(&services, offer.clone(), file).await?;
        comparisons.push(compared.with_context(|| file_name(file)).or_exit(Reason::Usage)?.comparison);
    }
    output::print(comparison::shown(&comparisons, args.output)?.as_bytes())?;
    let different = comparisons.iter().filter(|comparison| !comparison.equal).count();
    if different > 0 {
        let (calls, component) = (comparisons.len(), args.component.display());
        return Err(anyhow!("{component}: {different} of {calls} calls differ")).or_exit(Reason::Changes);
    }
    Ok(())
}

/// The component lacks the interface of a recorded call.
#[derive(Debug)]
pub(super) struct NotExported {
    origin: String,
    /// Interface and function.
    pub(super) function: String,
}

impl std::error::Error for NotExported {}

impl fmt::Display for NotExported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, function } = self;
        let (interface, _) = function.split_once('.').unwrap_or_default();
        write!(f, "{origin} does not export {interface}; choose recordings of the interfaces that it exports")
    }
}

/// A recorded call beside the same call of a component.
pub(super) struct Compared {
    pub(super) comparison: Comparison,
    /// The call of the component.
    pub(super) record: Arc<CallRecord>,
    /// The limits of both calls.
    pub(super) limits: Limits,
}

/// Makes the call of a recording, and compares.
///
/// # Errors
/// The recording cannot be replayed, or the component is refused.
pub(super) async fn compared(
    services: &SlotServices,
    offer: Offer,
    file: &Path,
) -> anyhow::Result<Result<Compared, NotExported>> {
    let recording = Arc::new(recordings::read(file).or_exit(Reason::Usage)?);
    let named = || format!("{}: {}", file.display(), recording.function);
    let function = functions::parse(&recording.function, recording.arguments.clone());
    let function = function.with_context(named).or_exit(Reason::Usage)?;
    let record = match once(services, offer, &recording, function).await.with_context(named)? {
        Ok(record) => record,
        Err(missing) => return Ok(Err(missing)),
    };
    let bug = "the call was not recorded; this is a bug in Skysail: report it with the recording";
    let replayed = record.recording.as_ref().context(bug).with_context(named)?;
    let (comparison, limits) = (Comparison::of(file, &recording, replayed), recording.limits.clone());
    Ok(Ok(Compared { comparison, record, limits }))
}

/// Makes the recorded call.
async fn once(
    services: &SlotServices,
    offer: Offer,
    recording: &Arc<Recording>,
    function: Function,
) -> anyhow::Result<Result<Arc<CallRecord>, NotExported>> {
    let recorder = CallRecorder::default().with_symbols_of(&services.recorder);
    let recorder = recorder.replaying(Arc::clone(recording)).or_exit(Reason::Usage)?;
    let services = SlotServices { recorder: recorder.clone(), ..services.clone() };
    let Recording { provider, limits, config, .. } = &**recording;
    // The component may be larger than that of the recorded call.
    let limits = Limits { component_bytes: limits.component_bytes.max(offer.bytes.len() as u64), ..limits.clone() };
    let options = SandboxOptions { name: provider.clone(), limits, config: config.clone(), http: None };
    let origin = offer.origin.clone();
    let loaded = identity::load(&services, options, offer).await.or_exit(Reason::Refused)?;
    let mut records = recorder.subscribe();
    // The outcome is in the recording.
    match function {
        Function::Identity(function) => drop(function.call(&loaded, config).await),
        Function::Provider(function) => {
            let identity::Loaded { sandbox, release } = loaded;
            let exported = release.interfaces();
            let (interface, _) = recording.function.split_once('.').unwrap_or_default();
            if !exported.iter().any(|exported| exported.name() == interface) {
                return Ok(Err(NotExported { origin, function: recording.function.clone() }));
            }
            let info = describe(&sandbox, &release).await.context("identity.describe").or_exit(Reason::Refused)?;
            // A recording is one call, also if the component asks for smaller pages.
            let info = Arc::new(Info { page_nodes: NODES_PER_PAGE, ..info });
            records = recorder.subscribe();
            let provider = SandboxedProvider::new(sandbox, Arc::new(release), info);
            drop(function.call(&provider, &Call::default()).await);
        }
    }
    let record = records.try_recv().ok();
    record.map(Ok).context("the call could not be made; this is a bug in Skysail: report it with the recording")
}

/// A file without its folder.
pub(super) fn file_name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
