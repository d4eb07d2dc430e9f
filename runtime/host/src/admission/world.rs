//! Reads a component's imports, exports and producers from its bytes.

use wasmparser::{BinaryReader, Parser, Payload, ProducersSectionReader};
use wit_parser::{
    IndexMap, InterfaceId, Resolve, WorldId, WorldItem, WorldKey,
    decoding::{DecodedWasm, decode},
};

use super::{FUNCTIONS_MAX, Interface, LISTED_MAX, RefusalCode, shown};

/// A component's types.
pub(super) struct World {
    pub(super) resolve: Resolve,
    id: WorldId,
}

/// One import or export, and its interface; none for a function or type outside of any interface.
pub(super) struct Item<'a> {
    pub(super) name: String,
    pub(super) interface: Option<&'a wit_parser::Interface>,
}

pub(super) fn read(bytes: &[u8]) -> Result<World, (RefusalCode, String)> {
    match decode(bytes) {
        Ok(DecodedWasm::Component(resolve, id)) => Ok(World { resolve, id }),
        Ok(DecodedWasm::WitPackage(..)) => Err((
            RefusalCode::WitPackage,
            "the file is a WIT package in binary form, types without code; give the component that implements them"
                .to_owned(),
        )),
        Err(error) => Err((
            RefusalCode::Malformed,
            format!(
                "it is not a valid component ({}); build it again with a current toolchain",
                shown(&format!("{error:#}"))
            ),
        )),
    }
}

impl World {
    pub(super) fn imports(&self) -> Vec<Item<'_>> {
        self.world().map(|world| self.items(&world.imports)).unwrap_or_default()
    }

    pub(super) fn exports(&self) -> Vec<Item<'_>> {
        self.world().map(|world| self.items(&world.exports)).unwrap_or_default()
    }

    fn world(&self) -> Option<&wit_parser::World> {
        self.resolve.worlds.get(self.id)
    }

    fn items(&self, items: &IndexMap<WorldKey, WorldItem>) -> Vec<Item<'_>> {
        let item = |(key, item): (&WorldKey, &WorldItem)| {
            let interface = match item {
                WorldItem::Interface { id, .. } => self.resolve.interfaces.get(*id),
                WorldItem::Function(_) | WorldItem::Type { .. } => None,
            };
            Item { name: self.resolve.name_world_key(key), interface }
        };
        items.iter().map(item).collect()
    }
}

/// The interfaces of a world's items.
pub(super) fn interfaces(items: &IndexMap<WorldKey, WorldItem>) -> impl Iterator<Item = InterfaceId> + '_ {
    items.values().filter_map(|item| match item {
        WorldItem::Interface { id, .. } => Some(*id),
        WorldItem::Function(_) | WorldItem::Type { .. } => None,
    })
}

/// The list for people.
pub(super) fn listed(items: &[Item<'_>]) -> Vec<Interface> {
    let mut left = FUNCTIONS_MAX;
    let mut interface = |item: &Item<'_>| {
        let functions = item.interface.map(|interface| interface.functions.keys());
        let functions: Vec<_> = functions.into_iter().flatten().take(left).map(|name| shown(name)).collect();
        left -= functions.len();
        Interface { name: shown(&item.name), functions }
    };
    items.iter().take(LISTED_MAX).map(&mut interface).collect()
}

/// The tools that built the component and the modules in it. Unreadable entries are left out,
/// because nothing depends on them.
pub(super) fn producers(bytes: &[u8]) -> Vec<String> {
    /// Entries shown. A component of several modules repeats the same tools.
    const PRODUCERS_MAX: usize = 20;
    let mut producers = Vec::new();
    for payload in Parser::new(0).parse_all(bytes).map_while(Result::ok) {
        let Payload::CustomSection(section) = payload else { continue };
        if section.name() != "producers" {
            continue;
        }
        let Ok(fields) = ProducersSectionReader::new(BinaryReader::new(section.data(), section.data_offset())) else {
            continue;
        };
        for field in fields.into_iter().map_while(Result::ok) {
            for value in field.values.into_iter().map_while(Result::ok) {
                let line = shown(format!("{}: {} {}", field.name, value.name, value.version).trim_end());
                if producers.len() < PRODUCERS_MAX && !producers.contains(&line) {
                    producers.push(line);
                }
            }
        }
    }
    producers
}
