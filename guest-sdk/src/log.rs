//! Lines in the host's log. Secrets do not belong here.
//!
//! ```no_run
//! # let (name, count) = ("a", 3);
//! skysail_guest_sdk::info!("created virtual server {name}"; "backends" => count);
//! ```

use crate::bindings::imports::skysail::provider::log;
pub use crate::bindings::imports::skysail::provider::log::Level;

/// Whether a line of this level would be kept.
#[must_use]
pub fn enabled(level: Level) -> bool {
    log::enabled(level)
}

/// Writes one line with fields; the host adds the provider's and the call's.
pub fn write(level: Level, message: &str, fields: &[(String, String)]) {
    log::write(level, message, fields);
}

/// One line at a level: format arguments, then after `;` fields as `"key" => value`. Nothing is formatted where the level is off.
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
