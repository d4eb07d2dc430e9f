//! Compares two versions of the contract by the rules of `wit/README.md`: can a host of the new
//! version run components that were built for the old version?
//!
//! A component contains its types, and wasmtime refuses a component whose record, variant, enum or
//! flags differ from the host's. Functions are looked up by name, so additional functions are
//! compatible. Documentation is not part of the shape of a type.

mod shape;
mod shipped;
mod tests;

use self::shape::Shape;

/// The world that lists every interface. No component targets it, so it may gain exports.
const GROWING_WORLD: &str = "complete-provider";

/// One reason why a component of the old version would not run on a host of the new one.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Break {
    /// For example `record types.node`.
    item: String,
    what: String,
}

/// Every incompatibility, sorted by item; empty if the new version only adds.
fn breaks(old: &Shape, new: &Shape) -> Vec<Break> {
    let mut found = Vec::new();
    for (item, before) in &old.items {
        let what = match new.items.get(item) {
            None => "removed".to_owned(),
            Some(after) if after == before => continue,
            Some(after) => difference(before, after),
        };
        found.push(Break { item: item.clone(), what });
    }
    for (world, before) in &old.worlds {
        let Some(after) = new.worlds.get(world) else {
            found.push(Break { item: format!("world {world}"), what: "removed".to_owned() });
            continue;
        };
        for gone in before.difference(after) {
            found.push(Break { item: format!("world {world}"), what: format!("`{gone}` removed") });
        }
        for more in after.difference(before).filter(|item| item.starts_with("export ") && world != GROWING_WORLD) {
            found.push(Break {
                item: format!("world {world}"),
                what: format!("`{more}` added: older components do not have it"),
            });
        }
    }
    found.sort();
    found
}

fn difference(before: &[String], after: &[String]) -> String {
    let only = |these: &[String], those: &[String]| {
        let list: Vec<_> = these.iter().filter(|part| !those.contains(part)).map(|part| format!("`{part}`")).collect();
        list.join(", ")
    };
    match (only(before, after).as_str(), only(after, before).as_str()) {
        ("", "") => "order changed".to_owned(),
        ("", added) => format!("{added} added"),
        (removed, "") => format!("{removed} removed"),
        (removed, added) => format!("{removed} became {added}"),
    }
}
