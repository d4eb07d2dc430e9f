//! The names of a component's functions, from the sidecar that its build wrote beside it.
//!
//! A component has no names of its own: they would add a quarter to it. Its backtraces have the
//! numbers of its functions and the beginning of its digest; [`crate::symbolized`] puts the names
//! of the sidecar there. A sidecar is as untrusted as the component: it is a file of a vendor, and
//! the manager reads none.
//!
//! A sidecar is a core module with two kinds of custom sections: `name`, as the toolchain wrote it,
//! and [`SECTION`] with the digest of the component.

use std::{
    borrow::Cow,
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use skysail_egress::read_file;
use wasmparser::{BinaryReaderError, KnownCustom, Name, Parser, Payload};

/// The custom section with the digest of the component, as text.
const SECTION: &str = "skysail:component";

/// The name of the module whose functions have their names in the sidecar.
pub(crate) const MODULE: &str = "skysail:main";

/// The largest sidecar: twice that of cloud-provider-openstack in Go, with 70,000 functions.
pub const SYMBOLS_BYTES_MAX: u64 = 32 << 20;

/// The sidecar cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SymbolsError {
    /// The file cannot be read.
    #[error("the symbols {} cannot be read; name the .symbols file that the build wrote beside the component", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is something else.
    #[error(
        "{} are no symbols: {reason}; name the .symbols file that `skysail componentize` wrote beside the component",
        .file.display()
    )]
    Invalid {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        reason: Cow<'static, str>,
    },
    /// The file belongs to another component.
    #[error(
        "the symbols {} are those of the component {has}, and this one is {wanted}; build the component again, which writes both files",
        .file.display()
    )]
    OfAnother {
        /// The file.
        file: PathBuf,
        /// The digest that it names.
        has: String,
        /// The digest of the component.
        wanted: String,
    },
}

/// The names of the functions of one component.
#[derive(Debug)]
pub struct Symbols {
    /// The digest of the component: `sha256:…`.
    component: String,
    /// By number.
    functions: Vec<(u32, Box<str>)>,
}

impl Symbols {
    /// The file in which a build leaves the names of a component: `cloud.symbols` for `cloud.wasm`.
    #[must_use]
    pub fn beside(component: &Path) -> PathBuf {
        component.with_extension("symbols")
    }

    /// Reads a sidecar.
    ///
    /// # Errors
    /// [`SymbolsError::Read`], [`SymbolsError::Invalid`].
    pub fn read(file: &Path) -> Result<Self, SymbolsError> {
        let source = |source| SymbolsError::Read { file: file.to_owned(), source };
        let bytes = read_file(file, SYMBOLS_BYTES_MAX).map_err(source)?;
        Self::parse(&bytes).map_err(|reason| SymbolsError::Invalid { file: file.to_owned(), reason })
    }

    /// Reads the sidecar of this component.
    ///
    /// # Errors
    /// [`SymbolsError`].
    pub fn read_of(file: &Path, component: &str) -> Result<Self, SymbolsError> {
        let symbols = Self::read(file)?;
        if symbols.component == component {
            return Ok(symbols);
        }
        let (file, has, wanted) = (file.to_owned(), symbols.component, component.to_owned());
        Err(SymbolsError::OfAnother { file, has, wanted })
    }

    fn parse(bytes: &[u8]) -> Result<Self, Cow<'static, str>> {
        if !bytes.starts_with(b"\0asm") {
            return Err("not a WebAssembly file".into());
        }
        if Parser::is_component(bytes) {
            return Err("it is a component itself".into());
        }
        let broken = |error: BinaryReaderError| Cow::from(format!("the file is damaged ({error})"));
        let (mut component, mut functions) = (None, Vec::new());
        for payload in Parser::new(0).parse_all(bytes) {
            let Payload::CustomSection(section) = payload.map_err(broken)? else { continue };
            if section.name() == SECTION {
                component = str::from_utf8(section.data()).ok().filter(|text| is_digest(text)).map(str::to_owned);
            } else if let KnownCustom::Name(parts) = section.as_known() {
                for part in parts {
                    let Name::Function(names) = part.map_err(broken)? else { continue };
                    for naming in names {
                        let naming = naming.map_err(broken)?;
                        functions.push((naming.index, naming.name.into()));
                    }
                }
            }
        }
        let Some(component) = component else { return Err("it does not name its component".into()) };
        // Of two names for one function the first counts.
        functions.sort_by_key(|(number, _)| *number);
        functions.dedup_by_key(|(number, _)| *number);
        Ok(Self { component, functions })
    }

    /// Of these functions, numbered from 0.
    #[cfg(test)]
    pub(crate) fn of(functions: &[&str], component: &str) -> Self {
        let functions = (0..).zip(functions).map(|(number, name)| (number, (*name).into())).collect();
        Self { component: component.to_owned(), functions }
    }

    /// The digest of the component that has these functions: `sha256:…`.
    #[must_use]
    pub fn component(&self) -> &str {
        &self.component
    }

    /// The name of a function, as the toolchain wrote it.
    #[must_use]
    pub fn function(&self, number: u32) -> Option<&str> {
        let at = self.functions.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.functions.get(at).map(|(_, name)| &**name)
    }
}

fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Files in which the names of a component may be, for tools of authors. Looks at them when a call
/// traps, because a build may have replaced the component and its names meanwhile.
#[derive(Debug)]
pub struct SymbolFiles {
    files: Vec<PathBuf>,
    /// Those that were read last: a component may trap in each call.
    last: Mutex<Option<Arc<Symbols>>>,
}

impl SymbolFiles {
    /// In these files.
    #[must_use]
    pub const fn new(files: Vec<PathBuf>) -> Self {
        Self { files, last: Mutex::new(None) }
    }

    /// The names of a component, if a file has them.
    pub(crate) fn of(&self, component: &str) -> Option<Arc<Symbols>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(symbols) = last.as_ref().filter(|symbols| symbols.component == component) {
            return Some(Arc::clone(symbols));
        }
        let found = self.files.iter().find_map(|file| {
            let read = Symbols::read_of(file, component);
            if let Err(error) = &read {
                tracing::debug!(error = error as &dyn std::error::Error, "no names for a backtrace");
            }
            read.ok()
        });
        *last = Some(Arc::new(found?));
        last.clone()
    }
}

impl fmt::Display for Symbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} functions of {}", self.functions.len(), self.component)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::{SymbolFiles, Symbols, SymbolsError};

    const FIRST: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const SECOND: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

    /// A module with functions of these names, and with the section.
    fn sidecar(functions: &[&str], component: &str) -> Vec<u8> {
        let functions: String = functions.iter().map(|name| format!("(func ${name})")).collect();
        wat::parse_str(format!(r#"(module {functions} (@custom "skysail:component" (after last) "{component}"))"#))
            .unwrap()
    }

    #[test]
    fn a_file_that_has_no_names_of_the_component_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cloud.symbols");
        let refused = |bytes: &[u8]| {
            fs::write(&file, bytes).unwrap();
            let error = Symbols::read_of(&file, FIRST).unwrap_err();
            error.to_string().replace(&folder.path().display().to_string(), "…")
        };
        let remedy = "; name the .symbols file that `skysail componentize` wrote beside the component";
        let whole = sidecar(&["f"], FIRST);
        let invalid: [(&[u8], &str); 6] = [
            (b"text", "not a WebAssembly file"),
            (b"", "not a WebAssembly file"),
            (b"\0asm\x0d\0\x01\0", "it is a component itself"),
            (b"\0asm\x01\0\0\0", "it does not name its component"),
            (&sidecar(&["f"], "sha256:abc"), "it does not name its component"),
            (&whole[..whole.len() - 10], "the file is damaged ("),
        ];
        for (bytes, reason) in invalid {
            let text = refused(bytes);
            assert!(
                text.starts_with(&format!("…/cloud.symbols are no symbols: {reason}")) && text.ends_with(remedy),
                "{text}"
            );
        }
        let text = refused(&sidecar(&["f"], SECOND));
        assert!(
            text.contains(SECOND)
                && text.contains(FIRST)
                && text.ends_with("build the component again, which writes both files"),
            "{text}"
        );
        let missing = Symbols::read(Path::new("/does/not/exist.symbols"));
        assert!(matches!(missing, Err(SymbolsError::Read { .. })), "{missing:?}");
    }

    #[test]
    fn the_files_are_looked_at_when_a_call_traps() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one.symbols", "two.symbols"].map(|name| folder.path().join(name));
        let files = SymbolFiles::new(vec![one.clone(), two.clone()]);
        let names = |component| files.of(component).and_then(|symbols| symbols.function(0).map(str::to_owned));
        assert_eq!(names(FIRST), None);
        fs::write(&one, sidecar(&["a"], FIRST)).unwrap();
        fs::write(&two, "damaged").unwrap();
        assert_eq!((names(FIRST), names(SECOND)), (Some("a".to_owned()), None));
        // A build replaces the component; a call of the one before still runs.
        fs::write(&one, sidecar(&["b"], SECOND)).unwrap();
        assert_eq!((names(FIRST), names(SECOND)), (Some("a".to_owned()), Some("b".to_owned())));
    }
}
