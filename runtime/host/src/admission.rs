//! Checks the imports and exports of a component before the component is compiled or run.
//!
//! # Flow
//! 1. [`look`] checks the kind of the file by its size and its first bytes. It finds most mistakes:
//!    text, a core module, a compressed file.
//! 2. `file` checks that the file is complete. `world` reads the imports and exports from the
//!    component's types.
//! 3. `judge` and `types` check that the contract has each import and each export with the same
//!    type.
//!
//! From the second step on, parsers process data of an untrusted author: a few KiB can overflow
//! their stack or keep them busy for minutes. So [`examine`] runs in the child process of the
//! compile jail, and the host treats its answer as untrusted input ([`Examination::bounded`]).
//!
//! Every refusal is a sentence that names the origin, the place, the reason and the remedy; the
//! list contains all refusals, not only the first. `skysail inspect` shows the same list. Linking
//! would find the same problems later, but wasmtime's messages do not name the remedy.

use std::{fmt, panic};

use serde::{Deserialize, Serialize};

mod contract;
mod file;
mod judge;
mod types;
mod world;

#[cfg(test)]
mod tests;

pub use contract::CONTRACT_VERSION;
pub(crate) use contract::version_of;
pub use skysail_slot::{digest_of, digest_text};

/// The result of checking a file: its identity, its imports and exports, and the reasons why it may
/// not serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// The source of the bytes, for people.
    pub origin: String,
    /// `sha256:` and 64 hexadecimal digits; empty if the file was not read completely.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Bytes.
    pub size: u64,
    /// Version of `skysail:provider` that the component was built for; none if it names none.
    pub contract_version: Option<String>,
    /// The imported interfaces and functions, in the component's order.
    pub imports: Vec<Interface>,
    /// The exported interfaces and functions, in the component's order.
    pub exports: Vec<Interface>,
    /// Names of the `wasi:` interfaces among the imports.
    pub wasi: Vec<String>,
    /// The tools that built the component: `language: Rust 1.96`,
    /// `processed-by: wit-component 0.258`. The file claims this; it is not verified.
    pub producers: Vec<String>,
    /// The reasons why the component may not serve; empty if it may.
    pub refusals: Vec<AdmissionRefusal>,
}

/// An interface of a component, or a function outside of any interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// `skysail:provider/http@0.1.0`; for a function outside of any interface its own name.
    pub name: String,
    /// Names of the functions.
    pub functions: Vec<String>,
}

/// Why a file may not serve: a stable code, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRefusal {
    /// The kind of problem.
    pub code: RefusalCode,
    /// Names the origin, the place, the reason and the remedy. One line; names from the file are
    /// truncated.
    pub sentence: String,
}

/// The kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RefusalCode {
    /// The file is empty.
    Empty,
    /// Larger than `componentBytes`.
    TooLarge,
    /// Text: source, WAT, an HTML error page.
    Text,
    /// gzip, zstd, zip or another archive.
    Compressed,
    /// Native code: made by wasmtime, or any other executable.
    Precompiled,
    /// Any other file that is not WebAssembly.
    NotWasm,
    /// Ends in the middle of a section.
    Truncated,
    /// A module without a component around it.
    CoreModule,
    /// A WIT package in binary form: types without code.
    WitPackage,
    /// A component that breaks the rules of the format.
    Malformed,
    /// Does not export `identity`.
    MissingIdentity,
    /// Built for a contract that is newer than this host's.
    NewerContract,
    /// Built for a contract that this host no longer supports.
    OlderContract,
    /// Imports an interface or a function that the host does not have.
    UnknownImport,
    /// Imports a part of WASI that the sandbox does not offer.
    WithheldWasi,
    /// Exports an interface of the contract without one of its functions.
    MissingFunction,
    /// An import or export has the contract's name and another type.
    WrongType,
    /// Compiling it exceeded a limit.
    CompileLimit,
    /// The compiler refused it or crashed.
    CompileFailed,
    /// The compiled component cannot be linked in the sandbox.
    LinkFailed,
}

impl RefusalCode {
    /// A stable CamelCase name: metric label and reason of a status.
    #[must_use]
    pub const fn category(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::TooLarge => "TooLarge",
            Self::Text => "Text",
            Self::Compressed => "Compressed",
            Self::Precompiled => "Precompiled",
            Self::NotWasm => "NotWasm",
            Self::Truncated => "Truncated",
            Self::CoreModule => "CoreModule",
            Self::WitPackage => "WitPackage",
            Self::Malformed => "Malformed",
            Self::MissingIdentity => "MissingIdentity",
            Self::NewerContract => "NewerContract",
            Self::OlderContract => "OlderContract",
            Self::UnknownImport => "UnknownImport",
            Self::WithheldWasi => "WithheldWasi",
            Self::MissingFunction => "MissingFunction",
            Self::WrongType => "WrongType",
            Self::CompileLimit => "CompileLimit",
            Self::CompileFailed => "CompileFailed",
            Self::LinkFailed => "LinkFailed",
        }
    }
}

impl fmt::Display for AdmissionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

/// A reason to refuse a component, without the origin of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionFinding {
    /// The kind of problem.
    pub code: RefusalCode,
    /// Names the place, the reason and the remedy. One line; names from the file are truncated.
    pub reason: String,
}

/// The result of reading the whole component: the answer of the compile jail's child process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Examination {
    contract_version: Option<String>,
    imports: Vec<Interface>,
    exports: Vec<Interface>,
    wasi: Vec<String>,
    producers: Vec<String>,
    /// Empty if the component may be compiled.
    pub(crate) refusals: Vec<AdmissionFinding>,
}

/// The maximum number of refusals in the list: a component for another host has hundreds of wrong
/// imports, and the first few are enough to see that.
const REFUSALS_MAX: usize = 12;
/// The maximum number of interfaces of each direction that are listed. A provider has tens.
const LISTED_MAX: usize = 200;
/// The maximum number of functions of each direction that are listed, all interfaces together. A
/// provider has tens.
const FUNCTIONS_MAX: usize = 2000;
/// Longest name from a file that is shown, in bytes.
const NAME_BYTES_MAX: usize = 200;
/// Longest reason, in bytes: a few names from the file and Skysail's own text.
const REASON_BYTES_MAX: usize = 2000;

/// Checks the size and the first bytes of a file. `bytes_max` is the limit `componentBytes`.
///
/// # Errors
/// The kind of file that it is instead of a component.
pub fn look(bytes: &[u8], bytes_max: u64) -> Result<(), AdmissionFinding> {
    file::check(bytes, bytes_max).map_err(|(code, reason)| AdmissionFinding { code, reason })
}

/// Reads a component and checks it. Never fails: [`Examination::refusals`] contains the problems.
///
/// Compiles nothing, but a hostile component can make this function run for very long or crash the
/// process: only the jail's child process calls it.
pub(crate) fn examine(bytes: &[u8]) -> Examination {
    let mut examination = Examination::default();
    if let Err((code, reason)) = file::sections(bytes) {
        examination.refuse(code, &reason);
        return examination;
    }
    // The parsers may panic on hostile files; a refusal is a better report than a crash.
    let read = panic::catch_unwind(|| world::read(bytes));
    match read {
        Ok(Ok(world)) => {
            examination.producers = world::producers(bytes);
            judge::judge(&world, &mut examination);
        }
        Ok(Err((code, reason))) => examination.refuse(code, &reason),
        Err(_) => examination.refuse(
            RefusalCode::Malformed,
            "its types cannot be read; build it with a current toolchain (wit-bindgen and wit-component, or wasm-tools)",
        ),
    }
    examination
}

impl Examination {
    fn refuse(&mut self, code: RefusalCode, reason: &str) {
        if self.refusals.len() < REFUSALS_MAX {
            self.refusals.push(AdmissionFinding { code, reason: reason.to_owned() });
        }
    }

    /// Truncates the examination to the bounds of an honest child process: a hostile component may
    /// control the process that sent them.
    pub(crate) fn bounded(mut self) -> Self {
        for interfaces in [&mut self.imports, &mut self.exports] {
            interfaces.truncate(LISTED_MAX);
            let mut left = FUNCTIONS_MAX;
            for Interface { name, functions } in interfaces {
                functions.truncate(left);
                left -= functions.len();
                functions.iter_mut().chain([name]).for_each(|name| *name = shown(name));
            }
        }
        self.wasi.truncate(LISTED_MAX);
        self.producers.truncate(LISTED_MAX);
        let names = self.wasi.iter_mut().chain(&mut self.producers).chain(&mut self.contract_version);
        names.for_each(|name| *name = shown(name));
        self.refusals.truncate(REFUSALS_MAX);
        for refusal in &mut self.refusals {
            refusal.reason = skysail_provider::text::one_line(&refusal.reason, REASON_BYTES_MAX);
        }
        self
    }
}

impl Inspection {
    /// The inspection of a file that has not been checked yet.
    pub(crate) fn new(bytes: &[u8], origin: &str) -> Self {
        Self {
            origin: shown(origin),
            digest: digest_text(&digest_of(bytes)),
            size: bytes.len() as u64,
            contract_version: None,
            imports: Vec::new(),
            exports: Vec::new(),
            wasi: Vec::new(),
            producers: Vec::new(),
            refusals: Vec::new(),
        }
    }

    /// Whether the component may be compiled.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        self.refusals.is_empty()
    }

    pub(crate) fn with(self, examination: Examination) -> Self {
        let Examination { contract_version, imports, exports, wasi, producers, refusals } = examination;
        let told = Self { contract_version, imports, exports, wasi, producers, ..self };
        refusals.into_iter().fold(told, Self::refused)
    }

    pub(crate) fn refused(mut self, AdmissionFinding { code, reason }: AdmissionFinding) -> Self {
        let sentence = format!("{}: {reason}", self.origin);
        self.refusals.push(AdmissionRefusal { code, sentence });
        self
    }
}

/// A name from a file, sanitised and truncated.
fn shown(name: &str) -> String {
    skysail_provider::text::one_line(name, NAME_BYTES_MAX)
}
