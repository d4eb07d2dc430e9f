//! Judges a component by what it imports and exports, before anything of it is compiled or run.
//!
//! # Flow
//! 1. What sort of file is it (`file`)? Most mistakes end here: text, a core module, a half-written or compressed file.
//! 2. Which world does it have (`world`)? Read from the component's types.
//! 3. Does the contract have each import and each export, with this type (`judge`, `types`)?
//!
//! Every refusal is a sentence that names the origin, the place, the reason and the way out; all of them are given, not only the first.
//! The same reading serves `skysail inspect`. Linking later checks the same again in wasmtime's words: this comes first so that nobody
//! has to read those.

use std::{fmt, panic};

use serde::Serialize;
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
    /// What it was made with: `language: Rust 1.96`, `processed-by: wit-component 0.258`. As the file says, which may lie.
    pub producers: Vec<String>,
    /// Why it may not serve; empty where it may.
    pub refusals: Vec<Refusal>,
}

/// An interface of a component, or a group of functions outside of any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
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
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

/// Most refusals that are listed: a component for another host has hundreds of wrong imports, and the first tell it all.
const REFUSALS_MAX: usize = 12;
/// Most interfaces of each direction, and most functions of each interface, that are listed. A provider has tens.
const LISTED_MAX: usize = 200;
/// Longest name out of a file that is shown, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// Reads a file and judges it. Never fails: what is wrong stands in [`Inspection::refusals`].
///
/// Blocks for a few milliseconds; compiles nothing. `bytes_max` is the limit `componentBytes`.
#[must_use]
pub fn inspect(bytes: &[u8], origin: &str, bytes_max: u64) -> Inspection {
    let mut inspection = Inspection {
        origin: shown(origin),
        digest: digest_text(&digest_of(bytes)),
        size: bytes.len() as u64,
        contract_version: None,
        imports: Vec::new(),
        exports: Vec::new(),
        wasi: Vec::new(),
        producers: Vec::new(),
        refusals: Vec::new(),
    };
    if let Err((code, reason)) = file::check(bytes, bytes_max) {
        inspection.refuse(code, &reason);
        return inspection;
    }
    // The readers are written for honest files, and a panic in one of them is the file's fault, not the host's end.
    let read = panic::catch_unwind(|| world::read(bytes));
    match read {
        Ok(Ok(world)) => {
            inspection.producers = world::producers(bytes);
            judge::judge(&world, &mut inspection);
        }
        Ok(Err((code, reason))) => inspection.refuse(code, &reason),
        Err(_) => inspection.refuse(
            RefusalCode::Malformed,
            "its types cannot be read: build it with a current toolchain (wit-bindgen and wit-component, or wasm-tools)",
        ),
    }
    inspection
}

impl Inspection {
    /// Whether the component may go on to be compiled.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        self.refusals.is_empty()
    }

    fn refuse(&mut self, code: RefusalCode, reason: &str) {
        if self.refusals.len() < REFUSALS_MAX {
            let sentence = format!("{}: {reason}", self.origin);
            self.refusals.push(Refusal { code, sentence });
        }
    }
}

/// SHA-256 of a component: what a release is known by.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

pub(crate) fn digest_text(digest: &[u8; 32]) -> String {
    digest.iter().fold(String::from("sha256:"), |text, byte| format!("{text}{byte:02x}"))
}

/// A name out of a file, fit to be shown.
fn shown(name: &str) -> String {
    crate::text::one_line(name, NAME_BYTES_MAX)
}
