//! The contract that this host supports, parsed from the WIT files that the bindings are generated
//! from.

use std::{collections::BTreeMap, path::Path, sync::LazyLock};

use wit_parser::{InterfaceId, Resolve};

pub use crate::bindings::CONTRACT_VERSION;
use crate::bindings::{LEGACY_PACKAGE, PACKAGE};

/// Version of `skysail:legacy` that this host supports.
const LEGACY_VERSION: &str = "0.1.0";

/// The package's version that this host supports; none for a package of anybody else.
pub(crate) fn version_of(package: &str) -> Option<&'static str> {
    match package {
        PACKAGE => Some(CONTRACT_VERSION),
        LEGACY_PACKAGE => Some(LEGACY_VERSION),
        _ => None,
    }
}

/// The files of the contract: the ones that `bindings` are generated from.
pub(super) const WIT: [(&str, &str); 9] = [
    ("host.wit", include_str!("../../../../wit/v0.1.0/host.wit")),
    ("http.wit", include_str!("../../../../wit/v0.1.0/http.wit")),
    ("identity.wit", include_str!("../../../../wit/v0.1.0/identity.wit")),
    ("instances.wit", include_str!("../../../../wit/v0.1.0/instances.wit")),
    ("load-balancers.wit", include_str!("../../../../wit/v0.1.0/load-balancers.wit")),
    ("persistent-volume-labels.wit", include_str!("../../../../wit/v0.1.0/persistent-volume-labels.wit")),
    ("routes.wit", include_str!("../../../../wit/v0.1.0/routes.wit")),
    ("types.wit", include_str!("../../../../wit/v0.1.0/types.wit")),
    ("world.wit", include_str!("../../../../wit/v0.1.0/world.wit")),
];

/// The files of the legacy interfaces, which use types of the contract.
pub(super) const LEGACY_WIT: [(&str, &str); 1] =
    [("legacy.wit", include_str!("../../../../wit/legacy-v0.1.0/legacy.wit"))];

/// The contract's types and interfaces.
pub(super) struct Contract {
    pub(super) resolve: Resolve,
    /// The interfaces that the host provides, by short name: `http`, `types`.
    pub(super) imports: BTreeMap<String, InterfaceId>,
    /// The interfaces that a provider may export, by package and name:
    /// `skysail:provider/identity`, `skysail:legacy/zones`.
    pub(super) exports: BTreeMap<String, InterfaceId>,
}

impl Contract {
    pub(super) fn get() -> &'static Self {
        static CONTRACT: LazyLock<Contract> = LazyLock::new(Contract::parse);
        &CONTRACT
    }

    #[expect(
        clippy::expect_used,
        reason = "the WIT is part of this program, and the bindings are compiled from the same files"
    )]
    fn parse() -> Self {
        let mut resolve = Resolve::default();
        let mut push = |files: &[(&str, &str)]| {
            let mut sources = wit_parser::SourceMap::default();
            for (name, text) in files {
                sources.push(Path::new(name), *text);
            }
            let group = sources.parse().map_err(|(_, error)| error).expect("the contract must parse");
            resolve.push_group(group).expect("the contract must resolve")
        };
        push(&WIT);
        let package = push(&LEGACY_WIT);
        let world =
            resolve.select_world(&[package], Some("complete-provider")).expect("the contract must have this world");
        let world = resolve.worlds.get(world).expect("a selected world must exist");
        let name = |id| resolve.interfaces.get(id).and_then(|interface| interface.name.clone());
        let imports = super::world::interfaces(&world.imports).filter_map(|id| Some((name(id)?, id))).collect();
        let full_name = |id| {
            let package = &resolve.packages.get(resolve.interfaces.get(id)?.package?)?.name;
            Some(format!("{}:{}/{}", package.namespace, package.name, name(id)?))
        };
        let exports = super::world::interfaces(&world.exports).filter_map(|id| Some((full_name(id)?, id))).collect();
        Self { imports, exports, resolve }
    }
}

#[cfg(test)]
mod tests {
    use super::{CONTRACT_VERSION, Contract, LEGACY_PACKAGE, LEGACY_VERSION, LEGACY_WIT, PACKAGE, WIT};

    #[test]
    fn the_contract_of_the_admission_is_the_one_in_the_wit_folder() {
        let contract = Contract::get();
        let packages: Vec<_> = contract.resolve.packages.iter().map(|(_, package)| package.name.to_string()).collect();
        let supported = [(PACKAGE, CONTRACT_VERSION), (LEGACY_PACKAGE, LEGACY_VERSION)];
        assert_eq!(packages, supported.map(|(package, version)| format!("{package}@{version}")));
        assert!(contract.imports.contains_key("http") && contract.imports.contains_key("types"));
        for export in ["skysail:provider/identity", "skysail:legacy/node-legacy"] {
            assert!(contract.exports.contains_key(export), "{export}");
        }
    }

    #[test]
    fn every_file_of_the_contract_is_included() {
        let included = [
            ("v0.1.0", WIT.map(|(name, _)| name).to_vec()),
            ("legacy-v0.1.0", LEGACY_WIT.map(|(name, _)| name).to_vec()),
        ];
        for (folder, names) in included {
            let folder = format!("{}/../../wit/{folder}", env!("CARGO_MANIFEST_DIR"));
            let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
            let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(name).collect();
            files.sort_unstable();
            assert_eq!(files, names);
        }
    }
}
