//! Reads a text that a flag names.

use std::{fs::File, io::Read as _, path::Path};

use anyhow::{Context as _, bail};

/// Largest text that is read, in bytes: certificates of a whole system have a fifth of it.
const BYTES_MAX: u64 = 1 << 20;

/// Reads it whole, also from a pipe, as `<(...)` of a shell is one. `what` says what is wanted, for
/// people: `a PEM public key`.
///
/// # Errors
/// Names the flag, the file, the reason and what is wanted.
pub(crate) fn read(flag: &str, path: &Path, what: &str) -> anyhow::Result<String> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes));
    read.with_context(|| format!("{flag}: cannot read {shown}: name a file with {what}"))?;
    if bytes.len() as u64 > BYTES_MAX {
        bail!("{flag}: {shown} has more than {BYTES_MAX} bytes: name a file with {what}");
    }
    String::from_utf8(bytes).ok().with_context(|| format!("{flag}: {shown} is no text: name a file with {what}"))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::read;

    #[test]
    fn what_is_no_text_has_no_end_or_is_not_there_is_told_with_flag_file_and_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let [key, binary] = ["cosign.pub", "provider.wasm"].map(|name| folder.path().join(name));
        fs::write(&key, "a key").unwrap();
        fs::write(&binary, b"\0asm\xff").unwrap();
        let told = |path: &Path| match read("--key", path, "a PEM public key") {
            Ok(text) => text,
            Err(error) => format!("{error:#}").replace(&folder.path().display().to_string(), "DIR"),
        };
        assert_eq!(told(&key), "a key");
        assert_eq!(told(&binary), "--key: DIR/provider.wasm is no text: name a file with a PEM public key");
        let endless = "--key: /dev/zero has more than 1048576 bytes: name a file with a PEM public key";
        assert_eq!(told(Path::new("/dev/zero")), endless);
        let missing =
            "--key: cannot read DIR/none: name a file with a PEM public key: No such file or directory (os error 2)";
        assert_eq!(told(&folder.path().join("none")), missing);
    }
}
