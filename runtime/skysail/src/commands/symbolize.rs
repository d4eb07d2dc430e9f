//! `skysail symbolize`: names in place of the numbers of functions in a backtrace. Also finds the
//! names of a component that a command calls.

use std::{
    collections::BTreeSet,
    io::{BufRead, Read as _},
    path::Path,
    sync::Arc,
};

use anyhow::{Context as _, bail};
use skysail_host::{
    admission::{digest_of, digest_text},
    symbolized,
    symbols::{SymbolFiles, Symbols},
};

use crate::{
    args::{SymbolizeArgs, SymbolsArgs},
    exit::{MarkExt as _, Reason},
    output,
};

/// The longest part of a text that is read at once. A longer line is copied in parts.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Components that the error names.
const UNKNOWN_MAX: usize = 10;

/// Copies standard input to standard output.
///
/// # Errors
/// A file has no symbols, the text cannot be read or written, or it has other components.
pub(crate) fn run(args: &SymbolizeArgs) -> anyhow::Result<()> {
    let symbols: Result<Vec<_>, _> = args.symbols.iter().map(|file| Symbols::read(file)).collect();
    let symbols = symbols.context("--symbols").or_exit(Reason::Usage)?;
    let unknown = copy(std::io::stdin().lock(), output::print, &symbols)?;
    if unknown.is_empty() {
        return Ok(());
    }
    let named: Vec<_> = unknown.iter().take(UNKNOWN_MAX).map(String::as_str).collect();
    let more = unknown.len().saturating_sub(named.len());
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let given: Vec<_> = symbols.iter().map(ToString::to_string).collect();
    bail!(
        "the text has backtraces of the components {}{more}, and the symbols are {}; give the symbols of these components, too",
        named.join(", "),
        given.join(", ")
    )
}

/// Copies each line; returns the components whose symbols are missing.
fn copy(
    mut input: impl BufRead,
    print: impl Fn(&[u8]) -> anyhow::Result<()>,
    symbols: &[Symbols],
) -> anyhow::Result<BTreeSet<String>> {
    let (mut line, mut unknown) = (Vec::new(), BTreeSet::new());
    loop {
        line.clear();
        let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if read.context("cannot read standard input")? == 0 {
            return Ok(unknown);
        }
        match str::from_utf8(&line) {
            Ok(text) => print(symbolized(text, symbols, &mut unknown).as_bytes())?,
            Err(_) => print(&line)?,
        }
    }
}

/// The names for the errors of this component, which a command calls.
///
/// # Errors
/// The file of `--symbols` has not the names of this component.
pub(super) fn of(args: &SymbolsArgs, component: &Path, bytes: &[u8]) -> anyhow::Result<Arc<SymbolFiles>> {
    let digest = digest_text(&digest_of(bytes));
    let (file, beside) = (args.symbols.clone(), Symbols::beside(component));
    let read = |file: &Path| Symbols::read_of(file, &digest);
    let file = match file {
        Some(file) => {
            read(&file).context("--symbols").or_exit(Reason::Usage)?;
            Some(file)
        }
        None if beside.exists() => {
            // The call itself needs no names.
            if let Err(error) = read(&beside) {
                output::say(&format!("warning: {:#}", anyhow::Error::from(error)));
            }
            Some(beside)
        }
        None => None,
    };
    Ok(Arc::new(SymbolFiles::new(file.into_iter().collect())))
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, fs, path::Path};

    use skysail_host::{
        admission::{digest_of, digest_text},
        symbols::Symbols,
    };

    use super::{copy, of};
    use crate::args::SymbolsArgs;

    /// The sidecar of a component, with one function.
    fn sidecar(component: &[u8]) -> Vec<u8> {
        let digest = digest_text(&digest_of(component));
        let mut module = b"\0asm\x01\0\0\0\0\x0c\x04name\x01\x05\x01\x07\x02me".to_vec();
        module.extend(b"\0\x59\x11skysail:component");
        module.extend(digest.as_bytes());
        module
    }

    #[test]
    fn each_line_is_copied_with_the_names_that_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cloud.symbols");
        fs::write(&file, sidecar(b"component")).unwrap();
        let symbols = [Symbols::read(&file).unwrap()];
        let known = &symbols[0].component()[7..19];
        let line = |component| format!("trapped; in functions 7 ← 9 of component {component}\n");
        let mut input = [line(known), line("0123456789ab")].concat().into_bytes();
        // Not UTF-8, longer than a part, and without an end of the line.
        input.extend(b"\xff\n");
        input.extend(vec![b'x'; 3 << 20]);
        let printed = RefCell::new(Vec::new());
        let print = |part: &[u8]| {
            printed.borrow_mut().extend_from_slice(part);
            Ok(())
        };
        let unknown = copy(&*input, print, &symbols).unwrap();
        assert_eq!(unknown.into_iter().collect::<Vec<_>>(), ["0123456789ab"]);
        let expected = ["trapped; in me\n", &line("0123456789ab")].concat().into_bytes();
        assert_eq!(*printed.borrow(), [&expected, &input[input.len() - (3 << 20) - 2..]].concat());
    }

    #[test]
    fn the_file_beside_a_component_is_optional_and_the_one_that_a_flag_names_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let component = folder.path().join("cloud.wasm");
        let with =
            |symbols: Option<&Path>| of(&SymbolsArgs { symbols: symbols.map(Path::to_owned) }, &component, b"new");
        with(None).unwrap();
        let beside = Symbols::beside(&component);
        fs::write(&beside, sidecar(b"old")).unwrap();
        with(None).unwrap();
        let error = format!("{:#}", with(Some(&beside)).unwrap_err());
        assert!(error.starts_with("--symbols: the symbols ") && error.contains("build the component again"), "{error}");
        fs::write(&beside, sidecar(b"new")).unwrap();
        with(Some(&beside)).unwrap();
    }
}
