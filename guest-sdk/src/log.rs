//! Lines in the host's log. Never log a secret.
//!
//! ```no_run
//! # let (name, count) = ("a", 3);
//! skysail_guest_sdk::info!("created virtual server {name}"; "backends" => count);
//! ```
//!
//! In a native test the lines go to standard output.
//!
//! The standard library's `println!`, `eprintln!` and `dbg!` have no effect on
//! `wasm32-unknown-unknown`, and no crate can change that. This crate has macros of the same names
//! whose lines reach the host's log: `use` them in a module, or write
//! `#[macro_use] extern crate skysail_guest_sdk;` at the root for the whole crate.
//!
//! ```
//! use skysail_guest_sdk::{dbg, println};
//!
//! println!("{} machines", dbg!(1 + 1));
//! ```

use crate::bindings::imports::skysail::provider::log;
pub use crate::bindings::imports::skysail::provider::log::Level;

/// Whether the host keeps lines of this level.
#[must_use]
pub fn enabled(level: Level) -> bool {
    cfg!(not(target_arch = "wasm32")) || log::enabled(level)
}

/// Writes one line with fields; the host adds the fields of the provider and the call.
pub fn write(level: Level, message: &str, fields: &[(String, String)]) {
    if cfg!(target_arch = "wasm32") {
        log::write(level, message, fields);
    } else {
        let fields: String = fields.iter().map(|(key, value)| format!(" {key}={value:?}")).collect();
        native_line(&format!("{level:?} {message}{fields}"));
    }
}

/// The function behind `println!` (level info) and `eprintln!` (level warn): each line of the text
/// becomes one line of the log.
#[doc(hidden)]
pub fn print(level: Level, text: &str) {
    if cfg!(not(target_arch = "wasm32")) {
        return native_line(text);
    }
    let stream = if level == Level::Info { "stdout" } else { "stderr" };
    for line in text.lines().filter(|line| !line.is_empty()) {
        log::write(level, line, &[("stream".to_owned(), stream.to_owned())]);
    }
}

#[expect(clippy::print_stdout, reason = "a test program shows the standard output of a test that fails")]
fn native_line(text: &str) {
    std::println!("{text}");
}

/// Writes one line: format arguments, then after `;` fields as `"key" => value`. Nothing is
/// formatted where the level is off.
#[macro_export]
macro_rules! log {
    ($level:ident, $($arg:expr),+ $(; $($key:expr => $value:expr),+ $(,)?)?) => {
        if $crate::log::enabled($crate::log::Level::$level) {
            $crate::log::write(
                $crate::log::Level::$level,
                &::std::format!($($arg),+),
                &[$($((::std::string::ToString::to_string(&$key), ::std::string::ToString::to_string(&$value))),+)?],
            );
        }
    };
}

/// The standard library's `println!`, at level info of the host's log.
#[macro_export]
macro_rules! println {
    () => {};
    ($($arg:tt)+) => { $crate::log::print($crate::log::Level::Info, &::std::format!($($arg)+)) };
}

/// The standard library's `eprintln!`, at level warn of the host's log.
#[macro_export]
macro_rules! eprintln {
    () => {};
    ($($arg:tt)+) => { $crate::log::print($crate::log::Level::Warn, &::std::format!($($arg)+)) };
}

/// The standard library's `dbg!`, at level warn of the host's log; the value on one line.
#[macro_export]
macro_rules! dbg {
    ($value:expr $(,)?) => {
        match $value {
            value => {
                let (file, line) = (::std::file!(), ::std::line!());
                $crate::eprintln!("[{file}:{line}] {} = {:?}", ::std::stringify!($value), &value);
                value
            }
        }
    };
}

/// [`log!`] at level debug.
#[macro_export]
macro_rules! debug { ($($t:tt)+) => { $crate::log!(Debug, $($t)+) }; }

/// [`log!`] at level info.
#[macro_export]
macro_rules! info { ($($t:tt)+) => { $crate::log!(Info, $($t)+) }; }

/// [`log!`] at level warn.
#[macro_export]
macro_rules! warn { ($($t:tt)+) => { $crate::log!(Warn, $($t)+) }; }

/// [`log!`] at level error.
#[macro_export]
macro_rules! error { ($($t:tt)+) => { $crate::log!(Error, $($t)+) }; }
