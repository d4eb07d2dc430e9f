//! Compares a component's imports and exports with the contract, and names the remedy for each
//! difference.

use semver::Version;

use super::{
    CONTRACT_VERSION, Examination, RefusalCode,
    contract::{Contract, version_of},
    shown, types,
    world::{self, Item, World},
};
use crate::{bindings::PACKAGE, imports::has_wasi};

/// The rule of wasmtime's linker: the same major version, or below 1.0 the same minor version. A
/// pre-release matches only itself.
fn matches(one: &Version, other: &Version) -> bool {
    if !one.pre.is_empty() || !other.pre.is_empty() {
        return one.cmp_precedence(other).is_eq();
    }
    // Of two versions only the numbers up to the first one that is not 0 have to be the same.
    match (one.major, one.minor) {
        (0, 0) => numbers(one) == numbers(other),
        (0, minor) => (0, minor) == (other.major, other.minor),
        (major, _) => major == other.major,
    }
}

const fn numbers(Version { major, minor, patch, .. }: &Version) -> (u64, u64, u64) {
    (*major, *minor, *patch)
}

/// `skysail:provider/http@0.1.0` in its parts.
struct Name<'a> {
    package: &'a str,
    interface: &'a str,
    version: Option<&'a str>,
}

/// The interface that each provider exports.
const IDENTITY: (&str, &str) = (PACKAGE, "identity");

impl<'a> Name<'a> {
    const fn path(&self) -> (&'a str, &'a str) {
        (self.package, self.interface)
    }

    fn parse(name: &'a str) -> Option<Self> {
        let (path, version) = name.split_once('@').map_or((name, None), |(path, version)| (path, Some(version)));
        let (package, interface) = path.split_once('/')?;
        Some(Self { package, interface, version })
    }
}

/// Whether a name belongs to the contract of this host.
enum ContractMatch<'a> {
    Ours(Name<'a>),
    Newer(&'a str),
    Older(&'a str),
    Foreign,
}

fn contract_match(name: &str) -> ContractMatch<'_> {
    let Some(name) = Name::parse(name) else { return ContractMatch::Foreign };
    let ours = version_of(name.package).and_then(|text| Version::parse(text).ok());
    let (Some(text), Some(ours)) = (name.version, ours) else { return ContractMatch::Foreign };
    match Version::parse(text) {
        Ok(version) if matches(&version, &ours) => ContractMatch::Ours(name),
        // Only tools call the other package.
        Ok(_) if name.package != PACKAGE => ContractMatch::Foreign,
        Ok(version) if numbers(&version) > numbers(&ours) => ContractMatch::Newer(text),
        Ok(_) => ContractMatch::Older(text),
        Err(_) => ContractMatch::Foreign,
    }
}

/// Fills in the imports and exports, and refuses those that the contract does not have.
pub(super) fn judge(world: &World, examination: &mut Examination) {
    let (imports, exports) = (world.imports(), world.exports());
    examination.imports = world::listed(&imports);
    examination.exports = world::listed(&exports);
    examination.wasi =
        examination.imports.iter().filter(|i| i.name.starts_with("wasi:")).map(|i| i.name.clone()).collect();
    examination.contract_version = contract_version(&exports).or_else(|| contract_version(&imports));
    if refuse_other_contract(&imports, &exports, examination) {
        // All other differences follow from this one.
        return;
    }
    for import in &imports {
        judge_import(world, import, examination);
    }
    for export in &exports {
        judge_export(world, export, examination);
    }
    let has_identity = |export: &Item<'_>| matches!(contract_match(&export.name), ContractMatch::Ours(name) if name.path() == IDENTITY);
    if !exports.iter().any(has_identity) {
        let reason = format!(
            "it does not export {PACKAGE}/identity@{CONTRACT_VERSION}, so it is not a provider: include the world `provider` in your own \
             world and implement `identity` (guests/dummy is the smallest example)"
        );
        examination.refuse(RefusalCode::MissingIdentity, &reason);
    }
}

fn contract_version(items: &[Item<'_>]) -> Option<String> {
    let names = items.iter().filter_map(|item| Name::parse(&item.name));
    names.filter(|name| name.package == PACKAGE).find_map(|name| name.version).map(shown)
}

fn refuse_other_contract(imports: &[Item<'_>], exports: &[Item<'_>], examination: &mut Examination) -> bool {
    for item in exports.iter().chain(imports) {
        let (code, version, way_out) = match contract_match(&item.name) {
            ContractMatch::Newer(version) => {
                (RefusalCode::NewerContract, version, "upgrade Skysail, or build the component for")
            }
            ContractMatch::Older(version) => (RefusalCode::OlderContract, version, "build the component for"),
            ContractMatch::Ours(_) | ContractMatch::Foreign => continue,
        };
        let reason = format!(
            "it is built for contract {} ({}), and this host supports {CONTRACT_VERSION}; {way_out} {CONTRACT_VERSION} (wit/v{CONTRACT_VERSION})",
            shown(version),
            shown(&item.name)
        );
        examination.refuse(code, &reason);
        return true;
    }
    false
}

fn judge_import(world: &World, import: &Item<'_>, examination: &mut Examination) {
    let name = shown(&import.name);
    if import.name.starts_with("wasi:") {
        if let Some(reason) = withheld(&import.name) {
            examination.refuse(RefusalCode::WithheldWasi, &format!("it imports {name}, {reason}"));
        }
        return;
    }
    let contract = Contract::get();
    let ContractMatch::Ours(parts) = contract_match(&import.name) else {
        let known: Vec<_> = contract.imports.keys().map(String::as_str).collect();
        let reason = format!(
            "it imports {name}, which this host does not have: a provider may import {PACKAGE}/{{{}}}@{CONTRACT_VERSION} and parts of WASI 0.2",
            known.join(",")
        );
        examination.refuse(RefusalCode::UnknownImport, &reason);
        return;
    };
    let ours = contract.imports.get(parts.interface).filter(|_| parts.package == PACKAGE);
    let ours = ours.and_then(|id| contract.resolve.interfaces.get(*id));
    let (Some(ours), Some(theirs)) = (ours, import.interface) else {
        let reason = format!(
            "it imports {name}, and contract {CONTRACT_VERSION} gives providers no such interface: it may be of a later contract; build the \
             component against wit/v{CONTRACT_VERSION}"
        );
        examination.refuse(RefusalCode::UnknownImport, &reason);
        return;
    };
    for (function, theirs) in &theirs.functions {
        let function_name = shown(function);
        match ours.functions.get(function) {
            None => examination.refuse(
                RefusalCode::UnknownImport,
                &format!(
                    "it imports {name}#{function_name}, and in contract {CONTRACT_VERSION} that interface has no such function: it may be of \
                     a later contract; build the component against wit/v{CONTRACT_VERSION}"
                ),
            ),
            Some(ours) => {
                let difference = types::Comparison::new(&contract.resolve, &world.resolve).function(ours, theirs);
                refuse_type(examination, &format!("{name}#{function_name}"), difference);
            }
        }
    }
}

fn judge_export(world: &World, export: &Item<'_>, examination: &mut Examination) {
    // Other exports are ignored: the host never calls newer interfaces or exports of a toolchain.
    let ContractMatch::Ours(parts) = contract_match(&export.name) else { return };
    let contract = Contract::get();
    let name = shown(&export.name);
    let path = format!("{}/{}", parts.package, parts.interface);
    let is_imported = parts.package == PACKAGE && contract.imports.contains_key(parts.interface);
    if is_imported && !contract.exports.contains_key(&path) {
        let reason = format!(
            "it exports {name}, which the host provides: its other exports would use their own types instead of the host's, and each call would trap; import \
             the interface and remove the export from your world"
        );
        examination.refuse(RefusalCode::WrongType, &reason);
        return;
    }
    let ours = contract.exports.get(&path).and_then(|id| contract.resolve.interfaces.get(*id));
    let (Some(ours), Some(theirs)) = (ours, export.interface) else { return };
    for (function, ours) in &ours.functions {
        match theirs.functions.get(function) {
            None => examination.refuse(
                RefusalCode::MissingFunction,
                &format!(
                    "it exports {name} without `{function}`: an interface is exported whole or not at all; implement the function, or leave \
                     the interface out of your world"
                ),
            ),
            Some(theirs) => {
                let difference = types::Comparison::new(&contract.resolve, &world.resolve).function(ours, theirs);
                refuse_type(examination, &format!("{name}#{function}"), difference);
            }
        }
    }
}

fn refuse_type(examination: &mut Examination, place: &str, difference: Option<String>) {
    if let Some(difference) = difference {
        let reason = format!(
            "{place} has another type than in contract {CONTRACT_VERSION}: {difference}; build the component against wit/v{CONTRACT_VERSION} as \
             it is, without changes"
        );
        examination.refuse(RefusalCode::WrongType, &reason);
    }
}

/// Why the sandbox does not offer this part of WASI, and what to use instead; none if it does.
fn withheld(import: &str) -> Option<&'static str> {
    let path = import.split('@').next().unwrap_or(import);
    let (package, _) = path.split_once('/').unwrap_or((path, ""));
    let is_0_2 = import.split_once('@').is_none_or(|(_, version)| version.starts_with("0.2."));
    Some(match package {
        "wasi:sockets" => "and the sandbox has no sockets; send requests with skysail:provider/http",
        "wasi:http" if is_0_2 && !has_wasi(path) => {
            "and of wasi:http the sandbox has outgoing-handler and types only; a provider serves no requests"
        }
        _ if !is_0_2 => {
            "and of WASI the sandbox has parts of 0.2 only; build the component for WASI 0.2, or without WASI"
        }
        _ if has_wasi(path) => return None,
        _ => {
            "and of WASI the sandbox has clocks, random numbers, streams and standard output only; leave it out, or build without WASI"
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{Version, matches};

    #[test]
    fn versions_match_as_the_linker_matches_them() {
        let matches = |one, other| matches(&Version::parse(one).unwrap(), &Version::parse(other).unwrap());
        for (one, other) in [("0.1.0", "0.1.3"), ("1.0.0", "1.4.2"), ("0.1.0-rc.1", "0.1.0-rc.1"), ("0.0.1", "0.0.1")] {
            assert!(matches(one, other) && matches(other, one), "{one} {other}");
        }
        for (one, other) in [("0.1.0", "0.2.0"), ("1.0.0", "2.0.0"), ("0.0.1", "0.0.2"), ("0.1.0-rc.1", "0.1.0")] {
            assert!(!matches(one, other) && !matches(other, one), "{one} {other}");
        }
        assert!(Version::parse("0.1").is_err() && Version::parse("x").is_err());
    }
}
