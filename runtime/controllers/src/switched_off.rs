//! Interfaces that a provider's cloud-config switches off.
//!
//! A component exports its interfaces whatever the cloud-config says. The error `Unsupported` as
//! the answer to a whole list or look-up means that the cloud-config does not configure the
//! interface. The controllers then treat the provider as one without the interface. They ask again
//! when another release serves or other settings are in force, and after [`ASK_AGAIN`].

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use skysail_provider::Interface;
use tokio::time::Instant;

/// Only an edit of the settings changes the answer, and the controllers notice an edit at once:
/// this is for a cloud-config that depends on the cloud.
pub(crate) const ASK_AGAIN: Duration = Duration::from_mins(30);

/// The interfaces of one provider that its cloud-config switches off.
#[derive(Debug, Default)]
pub(crate) struct SwitchedOff(Mutex<BTreeMap<Interface, Off>>);

#[derive(Clone, Copy, Debug)]
struct Off {
    /// Number of the release and the settings that switch the interface off.
    generation: u64,
    until: Instant,
}

impl SwitchedOff {
    /// How long the interface is not asked for; none if it may be asked for now.
    pub(crate) fn wait(&self, interface: Interface, generation: u64) -> Option<Duration> {
        let off = self.lock().get(&interface).copied().filter(|off| off.generation == generation)?;
        Some(off.until.saturating_duration_since(Instant::now())).filter(|wait| !wait.is_zero())
    }

    /// Returns whether the interface was not known to be off.
    pub(crate) fn off(&self, interface: Interface, generation: u64) -> bool {
        let off = Off { generation, until: Instant::now() + ASK_AGAIN };
        self.lock().insert(interface, off).is_none()
    }

    pub(crate) fn on(&self, interface: Interface) {
        self.lock().remove(&interface);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Interface, Off>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use skysail_provider::Interface;
    use tokio::time::advance;

    use super::{ASK_AGAIN, SwitchedOff};

    #[tokio::test(start_paused = true)]
    async fn an_interface_is_off_for_one_release_and_some_time_and_reported_once() {
        let off = SwitchedOff::default();
        assert_eq!(off.wait(Interface::Routes, 1), None);
        assert!(off.off(Interface::Routes, 1));
        assert_eq!(off.wait(Interface::Routes, 1), Some(ASK_AGAIN));
        assert_eq!((off.wait(Interface::Routes, 2), off.wait(Interface::Instances, 1)), (None, None));
        advance(ASK_AGAIN - Duration::from_secs(1)).await;
        assert_eq!(off.wait(Interface::Routes, 1), Some(Duration::from_secs(1)));
        advance(Duration::from_secs(1)).await;
        assert_eq!(off.wait(Interface::Routes, 1), None);
        assert!(!off.off(Interface::Routes, 2), "as before");
        off.on(Interface::Routes);
        assert_eq!(off.wait(Interface::Routes, 2), None);
        assert!(off.off(Interface::Routes, 2));
    }
}
