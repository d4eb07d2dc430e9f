//! `skysail componentize`: turns what a toolchain has made of a provider into a component.

use std::path::Path;

use anyhow::{Context as _, bail};
use skysail_componentize::Made;
use skysail_host::{read_file, write_file};

use crate::{
    args::ComponentizeArgs,
    exit::{MarkExt as _, Reason},
    output, output_file,
};

/// Go programs with a vendor's provider have 100 MB.
const INPUT_BYTES_MAX: u64 = 512 << 20;

/// Writes the component, and prints its file and size.
///
/// # Errors
/// The input is not the module of a provider, or a file cannot be read or written.
pub(crate) fn run(args: &ComponentizeArgs) -> anyhow::Result<()> {
    let ComponentizeArgs { input, output: file } = args;
    output_file::check("OUTPUT", file).or_exit(Reason::Usage)?;
    let shown = input.display();
    let module =
        read_file(input, INPUT_BYTES_MAX).with_context(|| format!("cannot read {shown}")).or_exit(Reason::Usage)?;
    let made = component(&module).with_context(|| format!("cannot make a component of {shown}"));
    let made = made.or_exit(Reason::Refused)?;
    let sidecar = made.write(file, write_file).with_context(|| format!("cannot write {}", file.display()))?;
    let named =
        |file: &Path, bytes: &[u8]| format!("{}: {} bytes", output::plain(&file.to_string_lossy()), bytes.len());
    let mut text = named(file, &made.component);
    if let (Some(sidecar), Some(symbols)) = (&sidecar, &made.symbols) {
        text.push_str(&format!("; {}, the names of its functions", named(sidecar, symbols)));
    }
    output::print(format!("{text}\n").as_bytes())
}

fn component(module: &[u8]) -> anyhow::Result<Made> {
    if !module.starts_with(b"\0asm") {
        bail!("it is not a WebAssembly file; name the .wasm file that the compiler wrote");
    }
    skysail_componentize::component(module)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::run;
    use crate::args::ComponentizeArgs;

    #[test]
    fn a_file_that_is_no_provider_is_refused_and_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let [input, output] = ["in", "out.wasm"].map(|name| folder.path().join(name));
        let refused = |bytes: &[u8], output: &Path| {
            fs::write(&input, bytes).unwrap();
            let args = ComponentizeArgs { input: input.clone(), output: output.to_owned() };
            format!("{:#}", run(&args).unwrap_err())
        };
        let text = refused(b"a text", &output);
        assert!(text.ends_with("it is not a WebAssembly file; name the .wasm file that the compiler wrote"), "{text}");
        for empty in [b"\0asm\x01\0\0\0", b"\0asm\x0d\0\x01\0"] {
            let text = refused(empty, &output);
            assert!(text.contains("it exports no interface of skysail:provider@0.1.0"), "{text}");
        }
        let text = refused(b"\0asm\x01\0\0\0", Path::new("/dev/null"));
        assert_eq!(text, "OUTPUT: /dev/null is not a regular file; name another file");
        assert!(!output.exists());
    }
}
