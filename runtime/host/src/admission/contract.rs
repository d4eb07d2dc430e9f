//! The contract that this host supports, parsed from the WIT files that the bindings are generated
//! from.

use std::{collections::BTreeMap, path::Path, sync::LazyLock};

use wit_parser::{InterfaceId, Resolve};

/// Version of `skysail:provider` that this host supports.
pub const CONTRACT_VERSION: &str = "0.1.0";

/// The package's name without its version.
pub(super) const PACKAGE: &str = "skysail:provider";

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

/// The contract's types and interfaces.
pub(super) struct Contract {
    pub(super) resolve: Resolve,
    /// The interfaces that the host provides, by short name: `http`, `types`.
    pub(super) imports: BTreeMap<String, InterfaceId>,
    /// The interfaces that a provider may export, by short name: `identity`, `routes`.
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
        let mut sources = wit_parser::SourceMap::default();
        for (name, text) in WIT {
            sources.push(Path::new(name), text);
        }
        let group = sources.parse().map_err(|(_, error)| error).expect("the contract must parse");
        let mut resolve = Resolve::default();
        let package = resolve.push_group(group).expect("the contract must resolve");
        let world =
            resolve.select_world(&[package], Some("complete-provider")).expect("the contract must have this world");
        let world = resolve.worlds.get(world).expect("a selected world must exist");
        let named = |items: Vec<InterfaceId>| {
            items.into_iter().filter_map(|id| Some((resolve.interfaces.get(id)?.name.clone()?, id))).collect()
        };
        let imports = named(super::world::interfaces(&world.imports).collect());
        let exports = named(super::world::interfaces(&world.exports).collect());
        Self { imports, exports, resolve }
    }
}

#[cfg(test)]
mod tests {
    use super::{CONTRACT_VERSION, Contract, PACKAGE};

    #[test]
    fn the_contract_of_the_admission_is_the_one_in_the_wit_folder() {
        let contract = Contract::get();
        let package = contract.resolve.packages.iter().next().unwrap().1;
        assert_eq!(package.name.to_string(), format!("{PACKAGE}@{CONTRACT_VERSION}"));
        assert!(contract.imports.contains_key("http") && contract.imports.contains_key("types"));
        assert!(contract.exports.contains_key("identity") && contract.exports.contains_key("node-legacy"));
    }

    #[test]
    fn every_file_of_the_contract_is_included() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit/v0.1.0");
        let mut files: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        files.sort_unstable();
        assert_eq!(files, super::WIT.map(|(name, _)| name));
    }
}
