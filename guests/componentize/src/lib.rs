//! Turns a core module into a component, and makes what the SDKs need: the bindings of the Go SDK,
//! an overlay of Go's standard library, and the types of the JavaScript SDK.

mod borrows;
mod component;
mod go_bindings;
mod go_overlay;
mod js_types;
mod sockets;
mod symbols;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

pub use self::{
    component::{Made, component},
    go_bindings::go_bindings,
    go_overlay::go_overlay,
    js_types::js_types,
};

/// The contract: the name and the text of each file.
const CONTRACT: [(&str, &str); 9] = [
    ("host.wit", include_str!("../../../wit/v0.1.0/host.wit")),
    ("http.wit", include_str!("../../../wit/v0.1.0/http.wit")),
    ("identity.wit", include_str!("../../../wit/v0.1.0/identity.wit")),
    ("instances.wit", include_str!("../../../wit/v0.1.0/instances.wit")),
    ("load-balancers.wit", include_str!("../../../wit/v0.1.0/load-balancers.wit")),
    ("persistent-volume-labels.wit", include_str!("../../../wit/v0.1.0/persistent-volume-labels.wit")),
    ("routes.wit", include_str!("../../../wit/v0.1.0/routes.wit")),
    ("types.wit", include_str!("../../../wit/v0.1.0/types.wit")),
    ("world.wit", include_str!("../../../wit/v0.1.0/world.wit")),
];

/// The contract's package and version, as the names of a component's exports have them.
const PACKAGE: &str = "skysail:provider";
const VERSION: &str = "0.1.0";

impl Made {
    /// Writes the component, and beside it the sidecar: `cloud.wasm` and `cloud.symbols`. Returns
    /// the sidecar's file. Where there are no names, the sidecar of an earlier build is removed.
    ///
    /// # Errors
    /// A file cannot be written, or has the name of a sidecar.
    pub fn write(&self, file: &Path, write: impl Fn(&Path, &[u8]) -> io::Result<()>) -> io::Result<Option<PathBuf>> {
        let sidecar = file.with_extension("symbols");
        if sidecar == file {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a file whose name ends with .symbols is the sidecar of a component; name a file that ends with .wasm",
            ));
        }
        // The sidecar first, so that it is there when a process sees the new component.
        let named = match &self.symbols {
            Some(symbols) => write(&sidecar, symbols).map(|()| true),
            None => match fs::remove_file(&sidecar) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                Ok(()) | Err(_) => Ok(false),
            },
        }?;
        write(file, &self.component)?;
        Ok(named.then_some(sidecar))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io};

    use super::Made;

    #[test]
    fn the_sidecar_is_written_beside_the_component_and_removed_where_there_are_no_names() {
        let folder = tempfile::tempdir().unwrap();
        let [component, symbols] = ["cloud.wasm", "cloud.symbols"].map(|name| folder.path().join(name));
        let mut made = Made { component: b"component".to_vec(), symbols: Some(b"names".to_vec()) };
        assert_eq!(made.write(&component, |file, bytes| fs::write(file, bytes)).unwrap(), Some(symbols.clone()));
        assert_eq!(
            (fs::read(&component).unwrap(), fs::read(&symbols).unwrap()),
            (made.component.clone(), b"names".to_vec())
        );
        let error = made.write(&symbols, |_, _| Ok(())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        made.symbols = None;
        for _ in 0..2 {
            assert_eq!(made.write(&component, |file, bytes| fs::write(file, bytes)).unwrap(), None);
            assert!(!symbols.exists());
        }
    }
}
