//! `skysail inspect`: what a component imports and exports, and whether a manager would accept it.
//! The compile jail reads and compiles the component; no code of the component runs.

use anyhow::{Context as _, bail};
use bytes::Bytes;
use prometheus_client::registry::Registry;
use serde_json::json;
use skysail_host::{
    CallMetrics, CallRecorder, Engine, Limits, Sandbox, SandboxOptions,
    admission::{AdmissionRefusal, Inspection, Interface, RefusalCode},
    jail::CompileCost,
};

use crate::{
    args::{InspectArgs, OutputFormat},
    component_file::{self, Contents},
    exit::{MarkExt as _, Reason},
    output, providers,
};

/// Prints the inspection.
///
/// # Errors
/// The file cannot be read, or the component is refused; the inspection of a refused component is
/// printed too.
pub(crate) fn run(args: &InspectArgs) -> anyhow::Result<()> {
    let limits = Limits::default();
    let origin = args.file.to_string_lossy().into_owned();
    let (inspection, cost) = match component_file::read(&args.file, limits.component_bytes).or_exit(Reason::Usage)? {
        Contents::Whole(bytes) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.context("cannot start tokio")?.block_on(judge(bytes, &origin, limits))?
        }
        Contents::TooLarge { size, bytes_max } => (too_large(output::plain(&origin), size, bytes_max), None),
    };
    let cost = cost.filter(|_| args.compile);
    let text = match args.output {
        OutputFormat::Text => text(&inspection, cost),
        OutputFormat::Json => json_text(&inspection, cost)?,
    };
    output::print(text.as_bytes())?;
    match inspection.refusals.len() {
        0 => Ok(()),
        1 => refused("for the reason above"),
        n => refused(&format!("for the {n} reasons above")),
    }
}

/// Checks a component as the manager's slots do, and returns the cost of compiling it.
///
/// # Errors
/// The check could not be completed.
pub(super) async fn judge(
    bytes: Bytes,
    origin: &str,
    limits: Limits,
) -> anyhow::Result<(Inspection, Option<CompileCost>)> {
    let engine = Engine::new().context("cannot make an engine")?;
    let recorder = CallRecorder::new(CallMetrics::register(&mut Registry::default()));
    let options = SandboxOptions { name: "inspect".to_owned(), limits, config: String::new(), http: None };
    let sandbox = Sandbox::new(&engine, recorder, options).context("cannot make a sandbox")?;
    let compiler = providers::compiler()?;
    compiler.judge(&sandbox, bytes, origin).await.with_context(|| origin.to_owned()).or_exit(Reason::Refused)
}

/// The inspection of a file that is too large and was not read: only its size is known.
fn too_large(origin: String, size: u64, bytes_max: u64) -> Inspection {
    let sentence = format!(
        "{origin} has {size} bytes, and the default limit of a component is {bytes_max} bytes; build the component smaller (release \
         profile, opt-level \"s\", stripped), or raise the limit for the manager (spec.limits.componentBytes)"
    );
    Inspection {
        origin,
        digest: String::new(),
        size,
        contract_version: None,
        imports: Vec::new(),
        exports: Vec::new(),
        wasi: Vec::new(),
        producers: Vec::new(),
        refusals: vec![AdmissionRefusal { code: RefusalCode::TooLarge, sentence }],
    }
}

fn refused(why: &str) -> anyhow::Result<()> {
    (|| bail!("a manager would refuse the component {why}"))().or_exit(Reason::Refused)
}

fn json_text(inspection: &Inspection, cost: Option<CompileCost>) -> anyhow::Result<String> {
    let mut value = serde_json::to_value(inspection).context("cannot encode the result")?;
    if let (Some(object), Some(CompileCost { cpu, memory_bytes })) = (value.as_object_mut(), cost) {
        object.insert("compile".to_owned(), json!({"cpuMs": cpu.as_millis(), "memoryBytes": memory_bytes}));
    }
    output::json(&value)
}

fn text(inspection: &Inspection, cost: Option<CompileCost>) -> String {
    let Inspection { origin, digest, size, contract_version, imports, exports, wasi: _, producers, refusals } =
        inspection;
    let mut out = String::new();
    let mut line = |name: &str, value: &str| out.push_str(&format!("{name:<10} {value}\n"));
    line("file", origin);
    if !digest.is_empty() {
        line("digest", digest);
    }
    line("size", &format!("{size} bytes ({} KiB)", size.div_ceil(1024)));
    let is_component = refusals.is_empty() || !exports.is_empty() || !imports.is_empty();
    if is_component {
        line("contract", contract_version.as_deref().unwrap_or("none"));
    }
    if let Some(CompileCost { cpu, memory_bytes }) = cost {
        line("compile", &format!("{} ms of CPU, {} MiB", cpu.as_millis(), memory_bytes >> 20));
    }
    for producer in producers {
        line("made with", producer);
    }
    for (name, interfaces) in [("exports", exports), ("imports", imports)] {
        if interfaces.is_empty() && is_component {
            line(name, "nothing");
        }
        for Interface { name: interface, functions } in interfaces {
            let functions = if functions.is_empty() { "types only".to_owned() } else { functions.join(", ") };
            line(name, &format!("{interface}  {functions}"));
        }
    }
    if refusals.is_empty() {
        line("verdict", "may serve");
    }
    for refusal in refusals {
        line("refused", &format!("[{}] {}", refusal.code.category(), refusal.sentence));
    }
    out
}
