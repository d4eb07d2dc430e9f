//! The overlay of Go's package net/http, for the vendors' Go code: every `http.Transport` of the
//! program sends through the host, also those that the vendor's code makes.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};

/// The function of net/http that sends a request, and its body in the overlay.
const SENDS: &str = "\treturn t.roundTrip(req)\n";
const SENDS_BY_THE_HOST: &str = "\tif SkysailRoundTrip != nil {\n\t\treturn SkysailRoundTrip(req)\n\t}\n";
const VARIABLE: &str = "\n// SkysailRoundTrip sends every request where it is set.\n\
    var SkysailRoundTrip func(*Request) (*Response, error)\n";

/// Writes `overlay.json`, for `go build -overlay`, and the file that it puts into the standard
/// library, below `folder`.
///
/// # Errors
/// There is no Go, its net/http has another form, or a file cannot be written.
pub fn go_overlay(folder: &Path) -> Result<()> {
    let output = Command::new("go").args(["env", "GOROOT"]).output().context("cannot run go")?;
    ensure!(output.status.success(), "`go env GOROOT` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    let root = String::from_utf8(output.stdout).context("GOROOT is not UTF-8")?;
    let original = Path::new(root.trim()).join("src/net/http/roundtrip.go");
    let text = fs::read_to_string(&original).with_context(|| format!("cannot read {}", original.display()))?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let folder = folder.canonicalize().with_context(|| format!("cannot resolve {}", folder.display()))?;
    let replacement = folder.join("roundtrip.go");
    let replaced = replaced(&text).with_context(|| original.display().to_string())?;
    fs::write(&replacement, replaced).with_context(|| format!("cannot write {}", replacement.display()))?;
    let overlay = serde_json::json!({ "Replace": { original.display().to_string(): replacement } });
    let file = folder.join("overlay.json");
    fs::write(&file, overlay.to_string()).with_context(|| format!("cannot write {}", file.display()))
}

fn replaced(text: &str) -> Result<String> {
    let (before, after) = text.split_once(SENDS).context(
        "this version of Go sends requests in another way than Go 1.26: build with Go 1.26, or report the version",
    )?;
    Ok(format!("{before}{SENDS_BY_THE_HOST}{SENDS}{after}{VARIABLE}"))
}

#[cfg(test)]
mod tests {
    use super::replaced;

    #[test]
    fn the_host_sends_where_it_is_set_and_another_version_of_go_is_an_error() {
        let text = "package http\n\nfunc (t *Transport) RoundTrip(req *Request) (*Response, error) {\n\treturn t.roundTrip(req)\n}\n";
        let overlaid = replaced(text).unwrap();
        let place = |part: &str| overlaid.find(part).unwrap();
        assert!(place("return SkysailRoundTrip(req)") < place("return t.roundTrip(req)"));
        assert!(overlaid.contains("var SkysailRoundTrip func"));
        assert!(replaced("package http\n").unwrap_err().to_string().contains("Go 1.26"));
    }
}
