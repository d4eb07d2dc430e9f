//! The names of a module's functions: a trap names them, and a provider has to fit into a
//! ConfigMap.

use anyhow::Result;
use wasm_encoder::{Module, NameMap, NameSection, RawSection};
use wasmparser::{KnownCustom, Name, Naming, Parser, Payload};

/// Longest name, in bytes: what a trap shows of one is not much longer.
const BYTES_MAX: usize = 100;

/// What the paths of Rust's own functions begin with. A trap names none of them before the first of
/// the author's.
const OF_RUST: [&str; 6] = ["std::", "core::", "alloc::", "__rustc", "hashbrown::", "dlmalloc::"];

/// The module with demangled, short names of the author's functions, in place of all symbols: a
/// fifth of some modules.
///
/// # Errors
/// The bytes are not a module.
pub(crate) fn shorten(module: &[u8]) -> Result<Vec<u8>> {
    let (mut shortened, mut names) = (Module::new(), NameMap::new());
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload?;
        if let Payload::CustomSection(section) = &payload
            && let KnownCustom::Name(reader) = section.as_known()
        {
            for part in reader {
                let Name::Function(functions) = part? else { continue };
                for function in functions {
                    let Naming { index, name } = function?;
                    if let Some(name) = short(name) {
                        names.append(index, &name);
                    }
                }
            }
        } else if let Some((id, range)) = payload.as_section() {
            let range = usize::try_from(range.start)?..usize::try_from(range.end)?;
            shortened.section(&RawSection { id, data: module.get(range).unwrap_or_default() });
        }
    }
    if !names.is_empty() {
        let mut section = NameSection::new();
        section.functions(&names);
        shortened.section(&section);
    }
    Ok(shortened.finish())
}

/// None for a function of Rust itself.
fn short(symbol: &str) -> Option<String> {
    let mut name = format!("{:#}", rustc_demangle::demangle(symbol));
    let path = name.trim_start_matches(['<', '&', '[', '(']);
    let path = path.strip_prefix("mut ").unwrap_or(path);
    if OF_RUST.iter().any(|start| path.starts_with(start)) {
        return None;
    }
    name.truncate(name.floor_char_boundary(BYTES_MAX));
    Some(name)
}

#[cfg(test)]
mod tests {
    use wasmparser::{KnownCustom, Name, Parser, Payload};

    use super::shorten;

    fn names(module: &[u8]) -> Vec<String> {
        let mut names = Vec::new();
        for payload in Parser::new(0).parse_all(module) {
            let Payload::CustomSection(section) = payload.unwrap() else { continue };
            let KnownCustom::Name(reader) = section.as_known() else { continue };
            for part in reader {
                let Name::Function(functions) = part.unwrap() else { continue };
                names.extend(functions.into_iter().map(|one| {
                    let one = one.unwrap();
                    format!("{} {}", one.index, one.name)
                }));
            }
        }
        names
    }

    #[test]
    fn the_authors_functions_keep_short_names_and_the_code_stays() {
        let module = format!(
            r#"(module (func $_ZN5cloud8machines4find17h0123456789abcdefE (export "f") (local $unused i32))
                (func $_ZN4core6option13unwrap_failed17h0123456789abcdefE)
                (func $_ZN54_$LT$cloud..Cloud$u20$as$u20$sdk..instances..Guest$GT$8describe17h0123456789abcdefE)
                (func ${}))"#,
            "x".repeat(200)
        );
        let module = wat::parse_str(module).unwrap();
        let short = shorten(&module).unwrap();
        let long = format!("3 {}", "x".repeat(100));
        let expected = ["0 cloud::machines::find", "2 <cloud::Cloud as sdk::instances::Guest>::describe", &long];
        assert_eq!(names(&short), expected);
        let code = |module: &[u8]| {
            let sections = Parser::new(0).parse_all(module).filter_map(|payload| match payload.unwrap() {
                Payload::CustomSection(_) => None,
                other => other.as_section().map(|(id, range)| {
                    let [start, end] = [range.start, range.end].map(|at| usize::try_from(at).unwrap());
                    (id, module[start..end].to_vec())
                }),
            });
            sections.collect::<Vec<_>>()
        };
        assert_eq!(code(&short), code(&module));
    }

    #[test]
    fn a_module_without_names_stays_as_it_is() {
        let module = wat::parse_str(r#"(module (func (export "f")))"#).unwrap();
        assert_eq!(shorten(&module).unwrap(), module);
    }
}
