//! The sidecar of a component: the names of its functions, by which the backtrace of a trap is
//! read. A provider has to fit into a ConfigMap, so the component itself has none.

use anyhow::Result;
use sha2::{Digest as _, Sha256};
use wasm_encoder::{CustomSection, Module, NameSection, RawSection};
use wasmparser::{KnownCustom, Parser, Payload};

/// The custom section of a sidecar with the digest of its component. `skysail_host::symbols` reads
/// the section.
const COMPONENT: &str = "skysail:component";

/// The name of the module whose functions have their names in the sidecar: wit-component adds
/// modules of its own to a component. `skysail_host` knows it.
const MODULE: &str = "skysail:main";

/// A core module without the names of its functions, and the content of its sections `name`.
pub(crate) struct Stripped {
    pub(crate) module: Vec<u8>,
    names: Vec<Vec<u8>>,
}

impl Stripped {
    /// Takes the names out of a module.
    ///
    /// # Errors
    /// The bytes are not a module.
    pub(crate) fn of(module: &[u8]) -> Result<Self> {
        let (mut stripped, mut names) = (Module::new(), Vec::new());
        for payload in Parser::new(0).parse_all(module) {
            let payload = payload?;
            if let Payload::CustomSection(section) = &payload
                && matches!(section.as_known(), KnownCustom::Name(_))
            {
                names.push(section.data().to_vec());
            } else if let Some((id, range)) = payload.as_section() {
                let range = usize::try_from(range.start)?..usize::try_from(range.end)?;
                stripped.section(&RawSection { id, data: module.get(range).unwrap_or_default() });
            }
        }
        if !names.is_empty() {
            let mut name = NameSection::new();
            name.module(MODULE);
            stripped.section(&name);
        }
        Ok(Self { module: stripped.finish(), names })
    }

    /// The sidecar for the component that was made of the module: a module of the names as the
    /// toolchain wrote them, and of the component's digest. None if the module had no names.
    pub(crate) fn symbols(&self, component: &[u8]) -> Option<Vec<u8>> {
        let mut sidecar = Module::new();
        let digest =
            Sha256::digest(component).iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"));
        sidecar.section(&CustomSection { name: COMPONENT.into(), data: digest.as_bytes().into() });
        for names in &self.names {
            sidecar.section(&CustomSection { name: "name".into(), data: names.into() });
        }
        (!self.names.is_empty()).then(|| sidecar.finish())
    }
}

#[cfg(test)]
mod tests {
    use wasmparser::{KnownCustom, Name, Parser, Payload};

    use super::Stripped;

    /// The names of the functions, and the other sections.
    fn read(module: &[u8]) -> (Vec<String>, Vec<(u8, Vec<u8>)>) {
        let (mut names, mut sections) = (Vec::new(), Vec::new());
        for payload in Parser::new(0).parse_all(module) {
            let payload = payload.unwrap();
            if let Payload::CustomSection(section) = &payload
                && let KnownCustom::Name(reader) = section.as_known()
            {
                for part in reader {
                    let Name::Function(functions) = part.unwrap() else { continue };
                    names.extend(functions.into_iter().map(|one| {
                        let one = one.unwrap();
                        format!("{} {}", one.index, one.name)
                    }));
                }
            } else if let Some((id, range)) = payload.as_section() {
                let [start, end] = [range.start, range.end].map(|at| usize::try_from(at).unwrap());
                sections.push((id, module[start..end].to_vec()));
            }
        }
        (names, sections)
    }

    #[test]
    fn the_names_go_into_the_sidecar_as_they_are_and_all_else_stays() {
        let module = format!(
            r#"(module $cloud (func $_ZN5cloud8machines4find17h0123456789abcdefE (export "f") (local $unused i32))
                (func $_ZN4core6option13unwrap_failed17h0123456789abcdefE)
                (func) (func ${}) (@custom "producers" (after last) "\00"))"#,
            "x".repeat(200)
        );
        let module = wat::parse_str(module).unwrap();
        let stripped = Stripped::of(&module).unwrap();
        let symbols = stripped.symbols(b"abc").unwrap();
        let (names, sections) = read(&module);
        assert_eq!(names.len(), 3);
        assert_eq!(read(&stripped.module), (Vec::new(), sections));
        let (moved, others) = read(&symbols);
        assert_eq!(moved, names);
        // Of "abc", as everybody knows.
        let digest = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let section = [b"\x11skysail:component".as_slice(), digest.as_bytes()].concat();
        assert_eq!(others, [(0, section)]);
    }

    #[test]
    fn a_module_without_names_stays_as_it_is_and_has_no_sidecar() {
        let module = wat::parse_str(r#"(module (func (export "f")))"#).unwrap();
        let stripped = Stripped::of(&module).unwrap();
        assert_eq!(stripped.module, module);
        assert!(stripped.symbols(&module).is_none());
    }
}
