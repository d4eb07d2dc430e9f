//! `skysail call`: calls one function of a component, in the same sandbox as in the manager.
//!
//! Arguments and answers are JSON. Services and Nodes are given as Kubernetes objects, as
//! `kubectl get -o json` prints them; the controllers' own code converts them to the types of the
//! contract.

pub(super) mod amounts;
mod cost;
pub(super) mod functions;
pub(super) mod identity;
#[cfg(feature = "dev")]
mod profile;
mod repeat;

use std::{
    io::{Read, Write as _},
    path::Path,
    sync::Arc,
};

use anyhow::{Context as _, anyhow, bail};
use prometheus_client::registry::Registry;
use serde_json::Value;
use skysail_host::slot::{Offer, Refusal, RefusalReason, Slot, SlotOptions, SlotServices};
use skysail_provider::{Call, Error, EventSink, ProviderEvent};

use self::{functions::Function, repeat::Spent};
use crate::{
    args::{CallArgs, LoggingFormat, ProviderOfCallArgs, RecordArgs},
    commands::{recordings::Folder, symbolize},
    component_file::{self, Contents},
    exit::{MarkExt as _, Reason},
    output,
    provider_file::{self, ProviderSpec},
    providers, telemetry,
};

/// Longest text of arguments, in bytes: two thousand nodes as `kubectl` prints them are about
/// twenty megabytes.
const ARGUMENTS_BYTES_MAX: u64 = 64 << 20;

/// Makes the call.
///
/// # Errors
/// The arguments are invalid, the component is refused, or the call returned an error.
pub(crate) fn run(args: CallArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log.log, LoggingFormat::Text).or_exit(Reason::Usage)?;
    tokio::runtime::Runtime::new().context("cannot start tokio")?.block_on(call(args))
}

async fn call(args: CallArgs) -> anyhow::Result<()> {
    let arguments = arguments(&args.json).or_exit(Reason::Usage)?;
    let spec = spec(&args.provider_of_call).or_exit(Reason::Usage)?;
    let function = functions::parse(&args.function, arguments).or_exit(Reason::Usage)?;
    let offer = component(&args.file, spec.limits.component_bytes)?;
    let mut services = providers::services(&mut Registry::default())?;
    let RecordArgs { record, redact } = &args.recording;
    let folder = Folder::of(record.as_ref(), redact, &mut services.recorder).or_exit(Reason::Usage)?;
    let symbols = symbolize::of(&args.symbols, &args.file, &offer.bytes)?;
    services.recorder = services.recorder.with_symbols(symbols);
    #[cfg(feature = "dev")]
    let profile = profile::ProfileFile::of(&args, &mut services.recorder).or_exit(Reason::Usage)?;
    let options = providers::slot_options(&spec, None)?;
    let mut spent = Spent::new(&args.function, &spec.limits, services.recorder.subscribe()).recorded(folder);
    let checks_config = matches!(function, Function::Identity(identity::Function::CheckConfig { .. }));
    let outcome = match function {
        Function::Identity(function) => {
            let loaded = identity::load(&services, options.sandbox, offer).await.or_exit(Reason::Refused)?;
            spent.repeat(args.repeat, async || function.clone().call(&loaded, &spec.config).await).await
        }
        Function::Provider(function) => {
            let slot = slot(services, options, offer).await?;
            check_exported(&args, &slot)?;
            let context = Call { events: Some(Arc::new(PrintedEvents)), ..Call::default() };
            spent.repeat(args.repeat, async || function.clone().call(&slot, &context).await).await
        }
    };
    if let Some(cost) = spent.shown(args.repeat) {
        // A closed standard error is ignored.
        drop(writeln!(std::io::stderr().lock(), "{cost}"));
    }
    spent.written()?;
    #[cfg(feature = "dev")]
    profile.map_or(Ok(()), |profile| profile.write())?;
    let answer = outcome.map_err(|error| anyhow!("{} returned {}", args.function, failure(&error)))?;
    output::print(output::json(&answer)?.as_bytes())?;
    if checks_config && identity::has_fatal_problem(&answer) {
        return Err(anyhow!("{} refuses the cloud-config; correct the fatal problems", args.file.display()))
            .or_exit(Reason::Refused);
    }
    Ok(())
}

/// The component of a file.
///
/// # Errors
/// The file cannot be read, or is larger than a component may be.
pub(super) fn component(file: &Path, bytes_max: u64) -> anyhow::Result<Offer> {
    let origin = format!("file {}", file.display());
    match component_file::read(file, bytes_max).or_exit(Reason::Usage)? {
        Contents::Whole(bytes) => Ok(Offer { bytes, origin }),
        Contents::TooLarge { size, bytes_max } => Err(anyhow!(
            "{} has {size} bytes, and the limit componentBytes is {bytes_max}; build the component smaller (release profile, opt-level \
             \"s\", stripped), or raise the limit in a provider file (--provider-file)",
            file.display()
        ))
        .or_exit(Reason::Refused),
    }
}

fn arguments(json: &str) -> anyhow::Result<Value> {
    let text = match json {
        "-" => read_arguments(std::io::stdin().lock())?,
        text => text.to_owned(),
    };
    serde_json::from_str(&text)
        .context(r#"--json is not JSON; give an object such as {"text": "..."}, or - for standard input"#)
}

fn read_arguments(input: impl Read) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let read = input.take(ARGUMENTS_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.context("--json -: cannot read standard input")?;
    if bytes.len() as u64 > ARGUMENTS_BYTES_MAX {
        bail!("--json -: standard input has more than {} MiB; give fewer nodes at once", ARGUMENTS_BYTES_MAX >> 20);
    }
    String::from_utf8(bytes).context("--json -: standard input is not UTF-8")
}

/// The provider in the provider file, or one with default limits and without egress.
pub(super) fn spec(args: &ProviderOfCallArgs) -> anyhow::Result<ProviderSpec> {
    let mut spec = match &args.provider_file {
        Some(path) => choose(path, args.provider.as_deref())?,
        // The caller wrote no rules, and many functions send no request.
        None => ProviderSpec { allow_unmet_egress: true, ..ProviderSpec::closed("call")? },
    };
    if let Some(path) = &args.cloud_config {
        spec.config =
            provider_file::read_config(path).map_err(|reason| anyhow!("--cloud-config {} {reason}", path.display()))?;
    }
    Ok(spec)
}

fn choose(path: &Path, name: Option<&str>) -> anyhow::Result<ProviderSpec> {
    let mut providers = provider_file::load(path)?.providers;
    let names: Vec<_> = providers.iter().map(|spec| spec.name.clone()).collect();
    let index = match name {
        Some(name) => names.iter().position(|known| known == name),
        None if names.len() == 1 => Some(0),
        None => bail!("{} has several providers; choose one with --provider: {}", path.display(), names.join(", ")),
    };
    match index {
        Some(index) => Ok(providers.swap_remove(index)),
        None => {
            bail!("{} has no provider {:?}; it has: {}", path.display(), name.unwrap_or_default(), names.join(", "))
        }
    }
}

/// A slot in which the component serves.
///
/// # Errors
/// The component is refused.
pub(super) async fn slot(services: SlotServices, options: SlotOptions, offer: Offer) -> anyhow::Result<Slot> {
    let configured = !options.sandbox.config.is_empty();
    let slot = Slot::new(services, options).context("cannot make the sandbox")?;
    match slot.offer(offer).await {
        Ok(_) => Ok(slot),
        Err(refusal) => Err(refused(refusal, configured)).or_exit(Reason::Refused),
    }
}

/// Checks that the component exports the interface. The slot's error would sound temporary.
fn check_exported(args: &CallArgs, slot: &Slot) -> anyhow::Result<()> {
    let exported = slot.status().borrow().active.as_ref().map(|active| active.interfaces.clone()).unwrap_or_default();
    match args.function.split_once('.') {
        Some((interface, _)) if !exported.contains(&interface) => {
            bail!(
                "{} does not export {interface}; choose an interface that it exports ({}), or another component",
                args.file.display(),
                exported.join(", ")
            )
        }
        Some(_) | None => Ok(()),
    }
}

fn refused(refusal: Refusal, configured: bool) -> anyhow::Error {
    if !configured && refusal.code == RefusalReason::ConfigRefused.category() {
        return anyhow!("{refusal} (the call has no cloud-config; give one with --cloud-config or --provider-file)");
    }
    refusal.into()
}

/// Code, message and, if the provider named it, the time of the next try.
pub(super) fn failure(error: &Error) -> String {
    let next = error.retry_after.map(|after| format!(" (next try: not before {:.1} s)", after.as_secs_f64()));
    format!("{}: {error}{}", error.code.category(), next.unwrap_or_default())
}

/// Prints the Events of the call, because there is no cluster to create them in.
struct PrintedEvents;

impl EventSink for PrintedEvents {
    fn emit(&self, event: ProviderEvent) {
        let ProviderEvent { object: _, kind, reason, message } = event;
        drop(writeln!(std::io::stderr().lock(), "event: {kind:?} {reason}: {message}"));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use skysail_provider::{Code, Error};

    use super::{ARGUMENTS_BYTES_MAX, failure, read_arguments};

    #[test]
    fn a_failure_names_the_time_of_the_next_try() {
        let error = Error::retry_after(Duration::from_millis(17_500), "429 Too Many Requests");
        assert_eq!(failure(&error), "RetryAfter: 429 Too Many Requests (next try: not before 17.5 s)");
        assert_eq!(failure(&Error::new(Code::Denied, "expired")), "Denied: expired");
    }

    #[test]
    fn more_arguments_than_allowed_are_refused_and_not_cut() {
        // The second one would be cut within a character.
        for byte in [b' ', 0xc3] {
            let error = read_arguments(std::io::repeat(byte)).unwrap_err();
            assert_eq!(error.to_string(), "--json -: standard input has more than 64 MiB; give fewer nodes at once");
        }
        let most = std::io::Read::take(std::io::repeat(b' '), ARGUMENTS_BYTES_MAX);
        assert_eq!(read_arguments(most).unwrap().len() as u64, ARGUMENTS_BYTES_MAX);
    }
}
