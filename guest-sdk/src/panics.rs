//! A panic's message goes to the host's log: the trap that follows carries no text.

/// Installs the hook; [`provider!`](crate::provider) arranges that it runs before the first call.
pub extern "C" fn install() {
    std::panic::set_hook(Box::new(|info| crate::log::write(crate::log::Level::Error, &info.to_string(), &[])));
}
