//! A probe that publishes many Events.

use skysail_guest_sdk::{Result, events};

skysail_probe::probe!("events", attack);

fn attack() -> Result<String> {
    (0..1_000).for_each(|n| events::warning("Noise", &format!("event {n}")));
    Ok("published".to_owned())
}
