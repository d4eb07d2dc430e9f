//! Judges a component by what it imports and exports, before anything of it is compiled or run.
//!
//! # Flow
//! 1. What sort of file is it ([`look`])? Its size and its first bytes; most mistakes end here:
//!    text, a core module, a compressed file.
//! 2. Was it written to its end (`file`)? Which world does it have (`world`)? Read from the
//!    component's types.
//! 3. Does the contract have each import and each export, with this type (`judge`, `types`)?
//!
//! From the second step on a reader walks structures that the file's author chose: a few KiB can
//! overflow its stack or keep it busy for minutes. So [`examine`] runs in the compile jail's child,
//! and what comes back is treated as untrusted input ([`Findings::bounded`]).
//!
//! Every refusal is a sentence that names the origin, the place, the reason and the way out; all of
//! them are given, not only the first. The same reading serves `skysail inspect`. Linking later
//! checks the same again in wasmtime's words: this comes first so that nobody has to read those.

use std::{fmt, panic};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

mod contract;
mod file;
mod judge;
mod types;
mod world;

#[cfg(test)]
mod tests;

pub use contract::CONTRACT_VERSION;

/// A file as the host sees it: what it is, what it wants, what it offers, and why it may not serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// Where the bytes came from, for people.
    pub origin: String,
    /// `sha256:` and 64 hexadecimal digits; empty where the file was not read to its end.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Bytes.
    pub size: u64,
    /// Version of `skysail:provider` that the component was built for; none where it names none.
    pub contract_version: Option<String>,
    /// Interfaces and functions that the component needs, in its own order.
    pub imports: Vec<Interface>,
    /// Interfaces and functions that the component offers, in its own order.
    pub exports: Vec<Interface>,
    /// Names of the `wasi:` interfaces among the imports.
    pub wasi: Vec<String>,
    /// What it was made with: `language: Rust 1.96`, `processed-by: wit-component 0.258`. As the
    /// file says, which may lie.
    pub producers: Vec<String>,
    /// Why it may not serve; empty where it may.
    pub refusals: Vec<Refusal>,
}

/// An interface of a component, or a group of functions outside of any.
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
pub struct Refusal {
    /// What is wrong.
    pub code: RefusalCode,
    /// Names origin, place, reason and way out. One line; names out of the file are cut.
    pub sentence: String,
}

/// What can be wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RefusalCode {
    /// No byte in it.
    Empty,
    /// Larger than `componentBytes`.
    TooLarge,
    /// Text: source, WAT, an HTML error page.
    Text,
    /// gzip, zstd, zip or another archive.
    Compressed,
    /// Native code: made by wasmtime, or any other executable.
    Precompiled,
    /// Something else.
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
    /// Built for a contract later than this host's.
    NewerContract,
    /// Built for a contract that this host no longer speaks.
    OlderContract,
    /// Needs an interface or a function that no known contract has.
    UnknownImport,
    /// Needs a part of WASI that the sandbox withholds.
    WithheldWasi,
    /// Exports an interface of the contract without one of its functions.
    MissingFunction,
    /// An import or export has the contract's name and another type.
    WrongType,
    /// Compiling it cost more than it may.
    CompileLimit,
    /// The compiler refused it, or crashed over it.
    CompileFailed,
    /// What was compiled does not fit the sandbox.
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

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

/// What is wrong with a file, wherever it came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What is wrong.
    pub code: RefusalCode,
    /// Names place, reason and way out. One line; names out of the file are cut.
    pub reason: String,
}

/// What a reading of the whole component tells: the answer of the compile jail's child.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Findings {
    contract_version: Option<String>,
    imports: Vec<Interface>,
    exports: Vec<Interface>,
    wasi: Vec<String>,
    producers: Vec<String>,
    /// Empty where the component may go on to be compiled.
    pub(crate) refusals: Vec<Finding>,
}

/// Most refusals that are listed: a component for another host has hundreds of wrong imports, and
/// the first tell it all.
const REFUSALS_MAX: usize = 12;
/// Most interfaces of each direction that are listed. A provider has tens.
const LISTED_MAX: usize = 200;
/// Most functions of each direction that are listed, all interfaces together. A provider has tens.
const FUNCTIONS_MAX: usize = 2000;
/// Longest name out of a file that is shown, in bytes.
const NAME_BYTES_MAX: usize = 200;
/// Longest reason, in bytes: a few names out of the file, and our own words.
const REASON_BYTES_MAX: usize = 2000;

/// Judges what a file is by its size and its first bytes. `bytes_max` is the limit
/// `componentBytes`.
///
/// # Errors
/// What it is instead of a component.
pub fn look(bytes: &[u8], bytes_max: u64) -> Result<(), Finding> {
    file::check(bytes, bytes_max).map_err(|(code, reason)| Finding { code, reason })
}

/// Reads a component and judges it. Never fails: what is wrong stands in [`Findings::refusals`].
///
/// Compiles nothing, and still a hostile component can make it run for very long, or end the
/// process: the jail's child calls it.
pub(crate) fn examine(bytes: &[u8]) -> Findings {
    let mut findings = Findings::default();
    if let Err((code, reason)) = file::sections(bytes) {
        findings.refuse(code, &reason);
        return findings;
    }
    // The readers are written for honest files, and a panic in one of them has a better name than a
    // crash.
    let read = panic::catch_unwind(|| world::read(bytes));
    match read {
        Ok(Ok(world)) => {
            findings.producers = world::producers(bytes);
            judge::judge(&world, &mut findings);
        }
        Ok(Err((code, reason))) => findings.refuse(code, &reason),
        Err(_) => findings.refuse(
            RefusalCode::Malformed,
            "its types cannot be read: build it with a current toolchain (wit-bindgen and wit-component, or wasm-tools)",
        ),
    }
    findings
}

impl Findings {
    fn refuse(&mut self, code: RefusalCode, reason: &str) {
        if self.refusals.len() < REFUSALS_MAX {
            self.refusals.push(Finding { code, reason: reason.to_owned() });
        }
    }

    /// The same within the bounds that an honest reading keeps: a component may have taken over the
    /// process that says this.
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
    /// Of a file that nobody has judged yet.
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

    /// Whether the component may go on to be compiled.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        self.refusals.is_empty()
    }

    pub(crate) fn with(self, findings: Findings) -> Self {
        let Findings { contract_version, imports, exports, wasi, producers, refusals } = findings;
        let told = Self { contract_version, imports, exports, wasi, producers, ..self };
        refusals.into_iter().fold(told, Self::refused)
    }

    pub(crate) fn refused(mut self, Finding { code, reason }: Finding) -> Self {
        let sentence = format!("{}: {reason}", self.origin);
        self.refusals.push(Refusal { code, sentence });
        self
    }
}

/// SHA-256 of a component: what a release is known by.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// `sha256:` and 64 hexadecimal digits: how a digest is shown.
#[must_use]
pub fn digest_text(digest: &[u8; 32]) -> String {
    digest.iter().fold(String::from("sha256:"), |text, byte| format!("{text}{byte:02x}"))
}

/// A name out of a file, fit to be shown.
fn shown(name: &str) -> String {
    skysail_provider::text::one_line(name, NAME_BYTES_MAX)
}
