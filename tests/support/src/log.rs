//! What a test logs, as text.
#![expect(clippy::unwrap_used, reason = "it is for tests only, and a panic is how a test fails")]

use std::{
    io, mem,
    sync::{Arc, Mutex},
};

/// A writer for a subscriber of `tracing`: `with_writer(move || log.clone())`. Clones share the
/// text.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// What was logged since the last call.
    ///
    /// # Panics
    /// The text is not UTF-8.
    #[must_use]
    pub fn take(&self) -> String {
        String::from_utf8(mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
