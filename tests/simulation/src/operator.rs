//! The operator, who adds, edits and removes providers. All processes follow the same list of
//! providers.

use tokio::sync::watch;

use crate::{chance::Chance, story::Story};

/// The settings that the operator edits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ownership {
    /// The second provider exists.
    pub(crate) second: bool,
    /// The second provider claims its class.
    pub(crate) class: bool,
    /// The second provider selects its new nodes.
    pub(crate) selector: bool,
    /// The first provider's settings have its provider-ID scheme; otherwise its component describes
    /// it.
    pub(crate) pinned: bool,
    /// The second provider may assign any address; otherwise only those of its cloud.
    pub(crate) any_address: bool,
    /// A younger provider exists, which claims the class of the second provider, whose component
    /// describes the scheme of the first one: another account of the same cloud, and whose selector
    /// selects the nodes that people join by hand, as that of the second provider does.
    pub(crate) younger: bool,
    /// The provider at this place is paused.
    pub(crate) paused: Option<usize>,
    /// The second provider was removed at some time of the day.
    pub(crate) second_was_removed: bool,
}

impl Ownership {
    /// Two providers select the nodes that people join by hand.
    pub(crate) const fn contests(self) -> bool {
        self.second && self.selector && self.younger
    }

    /// The settings at the begin and at the end of a day.
    const USUAL: Self = Self {
        second: true,
        class: true,
        selector: true,
        pinned: false,
        any_address: true,
        younger: false,
        paused: None,
        second_was_removed: false,
    };
}

/// See the module.
pub(crate) struct Operator {
    ownership: watch::Sender<Ownership>,
    /// The younger provider existed, and so may hold load balancers.
    younger_existed: bool,
    chance: Chance,
    story: Story,
}

impl Operator {
    pub(crate) fn new(seed: u64, story: Story) -> Self {
        let ownership = watch::Sender::new(Ownership::USUAL);
        Self { ownership, younger_existed: false, chance: Chance::of(seed, "operator"), story }
    }

    /// The settings that the processes follow.
    pub(crate) fn ownership(&self) -> watch::Receiver<Ownership> {
        self.ownership.subscribe()
    }

    /// Edits one setting.
    pub(crate) fn edit(&mut self) {
        let which = self.chance.number(0..=7);
        if which == 5 {
            let (provider, is_paused) = (self.chance.number(0..=1), self.ownership.borrow().paused.is_some());
            return self.pause((!is_paused).then_some(provider));
        }
        self.change(|ownership| {
            let field = match which {
                0 => &mut ownership.second,
                1 => &mut ownership.class,
                2 => &mut ownership.selector,
                3 => &mut ownership.pinned,
                4 => &mut ownership.any_address,
                _ => &mut ownership.younger,
            };
            *field = !*field;
        });
        self.younger_existed |= self.ownership.borrow().younger;
    }

    /// Pauses the provider at this place, and no other.
    pub(crate) fn pause(&self, paused: Option<usize>) {
        self.change(|ownership| ownership.paused = paused);
    }

    /// Adds the younger provider if it does not exist.
    pub(crate) fn have_younger(&mut self) {
        self.change(|ownership| ownership.younger = true);
        self.younger_existed = true;
    }

    /// Adds the younger provider, or removes it if it exists.
    pub(crate) fn add_younger(&mut self) {
        self.change(|ownership| ownership.younger = !ownership.younger);
    }

    /// Edits a setting of each older provider that takes nothing from either: the addresses that
    /// the second one may assign, and whether the first one's settings have its scheme.
    pub(crate) fn edit_harmlessly(&self) {
        self.change(|ownership| {
            ownership.any_address = !ownership.any_address;
            ownership.pinned = !ownership.pinned;
        });
    }

    /// Restores the usual settings that affect objects. The younger provider comes back if it
    /// existed: only that provider can delete what it holds, and it must not affect the older ones.
    pub(crate) fn restore(&mut self) {
        let younger = self.younger_existed;
        self.change(|ownership| {
            let usual = Ownership::USUAL;
            *ownership = Ownership {
                second: usual.second,
                class: usual.class,
                selector: usual.selector,
                paused: usual.paused,
                younger,
                ..*ownership
            };
        });
    }

    fn change(&self, change: impl FnOnce(&mut Ownership)) {
        self.ownership.send_modify(|ownership| {
            change(ownership);
            ownership.second_was_removed |= !ownership.second;
        });
        self.story.tell("operator", format_args!("has now {:?}", *self.ownership.borrow()));
    }
}
