//! The files of a support bundle, and the archive that they become.

use std::fmt::Write as _;

use anyhow::Context as _;
use flate2::{Compression, write::GzEncoder};

use super::redact::Redaction;
use crate::output::plain;

/// The files, and what is missing.
#[derive(Debug)]
pub(super) struct Bundle<'a> {
    redaction: &'a Redaction,
    files: Vec<File>,
    missing: Vec<(String, String)>,
}

#[derive(Debug)]
struct File {
    path: String,
    text: String,
    /// What the file has, for `contents.txt`: `objects: 12`.
    note: String,
}

impl<'a> Bundle<'a> {
    pub(super) const fn new(redaction: &'a Redaction) -> Self {
        Self { redaction, files: Vec::new(), missing: Vec::new() }
    }

    /// Adds a file with its text and a note about it; an error is what `contents.txt` says instead.
    pub(super) fn add(&mut self, path: &str, content: anyhow::Result<(String, String)>) {
        // A name of a pod or a container is part of the path.
        let path = path.replace(|c: char| !c.is_ascii_alphanumeric() && !"/.-_".contains(c), "_").replace("..", "_");
        match content {
            Ok((text, note)) => self.files.push(File { path, text, note: plain(&note) }),
            Err(error) => self.missing.push((path, plain(&self.redaction.text(&format!("{error:#}"))))),
        }
    }

    /// A line for each file, and for each that is missing.
    pub(super) fn contents(&self) -> String {
        let mut text = String::new();
        let paths = self.files.iter().map(|file| &file.path).chain(self.missing.iter().map(|(path, _)| path));
        let width = paths.map(String::len).max().unwrap_or_default();
        for File { path, note, .. } in &self.files {
            // Writing to a String does not fail.
            let _written = writeln!(text, "{path:width$}  {note}");
        }
        for (path, why) in &self.missing {
            let _written = writeln!(text, "{path:width$}  missing: {why}");
        }
        text
    }

    /// The archive: all files below one folder, with this time of change in seconds since 1970.
    ///
    /// # Errors
    /// A path is too long for the format.
    pub(super) fn archive(&self, folder: &str, head: &str, changed: u64) -> anyhow::Result<Vec<u8>> {
        let contents = format!("{head}\n{}", self.contents());
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        let files = self.files.iter().map(|file| (&*file.path, &*file.text));
        for (path, text) in std::iter::once(("contents.txt", &*contents)).chain(files) {
            let mut header = tar::Header::new_gnu();
            header.set_size(u64::try_from(text.len()).context("a file is too long")?);
            header.set_mode(0o600);
            header.set_mtime(changed);
            archive
                .append_data(&mut header, format!("{folder}/{path}"), text.as_bytes())
                .with_context(|| format!("cannot add {path} to the archive"))?;
        }
        Ok(archive.into_inner()?.finish()?)
    }
}
