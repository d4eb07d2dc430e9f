//! Detects the kind of a file by its first bytes, and whether it is complete by the lengths of its
//! sections.

use wasmparser::BinaryReader;
use wasmtime::{Engine, Precompiled};

use super::RefusalCode;

type FileRefusal = (RefusalCode, String);

const MAGIC: &[u8] = b"\0asm";
const MODULE: &[u8] = &[1, 0, 0, 0];
const COMPONENT: &[u8] = &[0x0d, 0, 1, 0];
/// Magic number and version.
const HEADER: usize = 8;

/// Ok if the file begins as a component does. Reads at most a fixed number of bytes.
pub(super) fn check(bytes: &[u8], bytes_max: u64) -> Result<(), FileRefusal> {
    let size = bytes.len() as u64;
    if bytes.is_empty() {
        return refused(RefusalCode::Empty, "the file is empty; copy the component to it again");
    }
    if size > bytes_max {
        let reason = format!(
            "it has {size} bytes, and the limit componentBytes is {bytes_max}; build the component smaller (release profile, opt-level \
             \"s\", stripped), or raise the limit"
        );
        return refused(RefusalCode::TooLarge, reason);
    }
    let Some(rest) = bytes.strip_prefix(MAGIC) else { return foreign(bytes) };
    match rest.get(..4) {
        Some(MODULE) => refused(
            RefusalCode::CoreModule,
            "the file is a core module, not a component; wrap it with `wasm-tools component new module.wasm -o provider.wasm`, or use the \
             component that your build makes beside it",
        ),
        Some(COMPONENT) => Ok(()),
        Some([version, _, layer, _]) => refused(
            RefusalCode::NotWasm,
            format!(
                "its header says version {version}, layer {layer}, which is neither module nor component of today; build it with a current toolchain"
            ),
        ),
        Some(_) | None => refused(RefusalCode::Truncated, truncated(bytes.len(), 0, HEADER - bytes.len())),
    }
}

/// Walks the outer sections by their lengths: a file that ends inside a section is incomplete.
pub(super) fn sections(bytes: &[u8]) -> Result<(), FileRefusal> {
    let mut at = HEADER;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let mut reader = BinaryReader::new(rest, 0);
        let head = reader.read_u8().and_then(|_section| reader.read_var_u32());
        let Ok(length) = head else {
            // A section header has at most six bytes: fewer are left only at the end of an
            // incomplete file.
            return if rest.len() < 6 {
                refused(RefusalCode::Truncated, truncated(bytes.len(), at, 1))
            } else {
                refused(
                    RefusalCode::Malformed,
                    format!("the section at byte {at} has no length; build the component again"),
                )
            };
        };
        let head = usize::try_from(reader.original_position()).unwrap_or(usize::MAX);
        let end = at.saturating_add(head).saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
        if end > bytes.len() {
            return refused(RefusalCode::Truncated, truncated(bytes.len(), at, end - bytes.len()));
        }
        at = end;
    }
    Ok(())
}

fn truncated(size: usize, at: usize, missing: usize) -> String {
    format!(
        "the file ends too early: after {size} bytes, in the section that starts at byte {at}, at least {missing} bytes are missing; copy it \
         again, preferably under another name and then renamed"
    )
}

fn foreign(bytes: &[u8]) -> Result<(), FileRefusal> {
    const TEXT_LOOKED_AT: usize = 512;
    const GZIP: &[u8] = &[0x1f, 0x8b];
    const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
    const ZIP: &[u8] = b"PK\x03\x04";
    if let Some(kind) = Engine::detect_precompiled(bytes) {
        let what = match kind {
            Precompiled::Module => "module",
            Precompiled::Component => "component",
        };
        let reason = format!(
            "the file is a {what} that wasmtime has precompiled (.cwasm): native code from outside is never run; give the .wasm file it was \
             made from, this host compiles it by itself"
        );
        return refused(RefusalCode::Precompiled, reason);
    }
    if bytes.starts_with(b"\x7fELF") {
        return refused(
            RefusalCode::Precompiled,
            "the file is a native executable or library (ELF); build the provider for wasm32-unknown-unknown and make a component of it",
        );
    }
    if [GZIP, ZSTD, ZIP].iter().any(|magic| bytes.starts_with(magic)) {
        return refused(RefusalCode::Compressed, "the file is compressed; unpack it and give the .wasm file inside");
    }
    if bytes.len() < MAGIC.len() && MAGIC.starts_with(bytes) {
        return refused(RefusalCode::Truncated, truncated(bytes.len(), 0, HEADER - bytes.len()));
    }
    let start = String::from_utf8_lossy(bytes.get(..TEXT_LOOKED_AT).unwrap_or(bytes));
    let is_text = !start.chars().take(64).any(|c| c == '\u{fffd}' || (c.is_control() && !c.is_whitespace()));
    if is_text {
        refused(RefusalCode::Text, text(start.trim_start()))
    } else {
        refused(RefusalCode::NotWasm, unknown(bytes))
    }
}

fn text(start: &str) -> String {
    let lower = start.to_ascii_lowercase();
    if lower.starts_with("<!doctype") || lower.starts_with("<html") || lower.starts_with("<?xml") {
        "the file is a web page, not a component: a download probably ended in an error or a login page; fetch the file again".to_owned()
    } else if lower.starts_with("(module") || lower.starts_with("(component") || lower.starts_with(";;") {
        "the file is WebAssembly text; make a binary of it with `wasm-tools parse provider.wat -o provider.wasm`"
            .to_owned()
    } else {
        let line: String = start.lines().next().unwrap_or_default().chars().take(40).collect();
        format!(
            "the file is text, not a component; it begins with {:?}; give the .wasm file that your build makes",
            super::shown(&line)
        )
    }
}

fn unknown(bytes: &[u8]) -> String {
    let start: Vec<_> = bytes.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!(
        "the file is not WebAssembly: it begins with the bytes {} instead of 00 61 73 6d; give the .wasm file that your build makes",
        start.join(" ")
    )
}

fn refused(code: RefusalCode, reason: impl Into<String>) -> Result<(), FileRefusal> {
    Err((code, reason.into()))
}
