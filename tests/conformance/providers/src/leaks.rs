//! Values of credentials must not be in the log, whatever its level.
//!
//! Every line that the process writes is searched for the values of every world, and for the tokens
//! and sessions that a cloud issues. Errors, answers and Events of the provider are lines, too.

use std::{
    io,
    sync::{Mutex, MutexGuard, Once, PoisonError},
};

use anyhow::{Result, ensure};
use memchr::memmem::Finder;
use tracing_subscriber::fmt::MakeWriter;

/// The values of all worlds, and the lines that had one.
static WATCHED: Mutex<Watched> = Mutex::new(Watched { values: Vec::new(), found: Vec::new(), lines: 0 });

struct Watched {
    values: Vec<Finder<'static>>,
    found: Vec<String>,
    lines: u64,
}

fn watched() -> MutexGuard<'static, Watched> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Searches every later line of the log, at every level, for these values.
pub(crate) fn watch(values: impl IntoIterator<Item = String>) {
    static START: Once = Once::new();
    START.call_once(|| {
        let levels = tracing_subscriber::filter::LevelFilter::TRACE;
        let log = tracing_subscriber::fmt().with_max_level(levels).with_ansi(false).with_writer(Search).finish();
        // Without the lines of the crate `log`, in which the compiler of components traces each
        // instruction. A second subscriber cannot be.
        tracing::subscriber::set_global_default(log).ok();
    });
    let mut watched = watched();
    for value in values {
        if watched.values.iter().all(|known| known.needle() != value.as_bytes()) {
            watched.values.push(Finder::new(&value).into_owned());
        }
    }
}

/// Fails if a line had a value.
///
/// # Errors
/// The lines, and the values in them.
pub fn none() -> Result<()> {
    let watched = watched();
    ensure!(watched.lines > 0, "nothing was logged, so nothing was searched");
    ensure!(watched.found.is_empty(), "values of credentials are in the log:\n{}", watched.found.concat());
    Ok(())
}

#[derive(Clone, Copy)]
struct Search;

impl<'a> MakeWriter<'a> for Search {
    type Writer = Self;

    fn make_writer(&'a self) -> Self::Writer {
        *self
    }
}

impl io::Write for Search {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut watched = watched();
        watched.lines += 1;
        if watched.values.iter().any(|value| value.find(line).is_some()) {
            watched.found.push(String::from_utf8_lossy(line).into_owned());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
