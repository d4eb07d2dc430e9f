//! Reads a text file that a flag names.

use std::{fs::File, io::Read as _, path::Path};

use anyhow::{Context as _, bail};

/// Largest text file, in bytes. The CA certificates of a whole system take a fifth of it.
const BYTES_MAX: u64 = 1 << 20;

/// Reads the whole file; the file may be a pipe, such as `<(...)` of a shell. `what` describes the
/// expected content in errors: `a PEM public key`.
///
/// # Errors
/// The file cannot be read, is too large or is not UTF-8; the error names the flag and the file.
pub(crate) fn read(flag: &str, path: &Path, what: &str) -> anyhow::Result<String> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes));
    read.with_context(|| format!("{flag}: cannot read {shown}; name a file with {what}"))?;
    if bytes.len() as u64 > BYTES_MAX {
        bail!("{flag}: {shown} has more than {BYTES_MAX} bytes; name a file with {what}");
    }
    String::from_utf8(bytes)
        .ok()
        .with_context(|| format!("{flag}: {shown} is not UTF-8 text; give a file that contains {what}"))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::read;

    #[test]
    fn an_error_about_a_file_names_the_flag_the_file_the_reason_and_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let [key, binary] = ["cosign.pub", "provider.wasm"].map(|name| folder.path().join(name));
        fs::write(&key, "a key").unwrap();
        fs::write(&binary, b"\0asm\xff").unwrap();
        let outcome = |path: &Path| match read("--key", path, "a PEM public key") {
            Ok(text) => text,
            Err(error) => format!("{error:#}").replace(&folder.path().display().to_string(), "DIR"),
        };
        assert_eq!(outcome(&key), "a key");
        assert_eq!(
            outcome(&binary),
            "--key: DIR/provider.wasm is not UTF-8 text; give a file that contains a PEM public key"
        );
        let endless = "--key: /dev/zero has more than 1048576 bytes; name a file with a PEM public key";
        assert_eq!(outcome(Path::new("/dev/zero")), endless);
        let missing =
            "--key: cannot read DIR/none; name a file with a PEM public key: No such file or directory (os error 2)";
        assert_eq!(outcome(&folder.path().join("none")), missing);
    }
}
