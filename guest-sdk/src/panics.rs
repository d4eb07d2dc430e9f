//! A panic's text and place go to the host before the trap, which carries no text.

use crate::log::{self, Level};

/// Installs the hook; [`provider!`](crate::provider) arranges that it runs before the first call.
pub extern "C" fn install() {
    // The field `panic` is what the host knows the reason of a trap by (`wit/v0.1.0/host.wit`).
    std::panic::set_hook(Box::new(|info| {
        log::write(Level::Error, &info.to_string(), &[("panic".to_owned(), "true".to_owned())]);
    }));
}
