//! The operator, who adds, edits and removes providers. All processes follow the same list of
//! providers.

use tokio::sync::watch;

use crate::{chance::Chance, story::Story};

/// What the operator may edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ownership {
    /// The second provider is there.
    pub(crate) second: bool,
    /// The second provider claims its class.
    pub(crate) class: bool,
    /// The second provider selects its new nodes.
    pub(crate) selector: bool,
    /// The first provider pins its provider-ID scheme; else its component describes it.
    pub(crate) pinned: bool,
    /// The second provider may give any address; else only those of its cloud.
    pub(crate) any_address: bool,
    /// A younger provider is there, which claims the class of the second provider and whose
    /// component describes the scheme of the first one: another account of the same cloud.
    pub(crate) younger: bool,
}

impl Ownership {
    /// As it is at the begin and at the end of a day.
    const USUAL: Self =
        Self { second: true, class: true, selector: true, pinned: false, any_address: true, younger: false };
}

/// See the module.
pub(crate) struct Operator {
    ownership: watch::Sender<Ownership>,
    chance: Chance,
    story: Story,
}

impl Operator {
    pub(crate) fn new(seed: u64, story: Story) -> Self {
        Self { ownership: watch::Sender::new(Ownership::USUAL), chance: Chance::of(seed, "operator"), story }
    }

    /// What the processes follow.
    pub(crate) fn ownership(&self) -> watch::Receiver<Ownership> {
        self.ownership.subscribe()
    }

    /// Edits one thing.
    pub(crate) fn edit(&mut self) {
        let which = self.chance.number(0..=7);
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
    }

    /// Adds the younger provider, or removes it where it is there.
    pub(crate) fn add_younger(&mut self) {
        self.change(|ownership| ownership.younger = !ownership.younger);
    }

    /// Takes back what owners of objects suffer from. The younger provider stays where it is: it
    /// must not disturb the older ones.
    pub(crate) fn restore(&mut self) {
        self.change(|ownership| {
            *ownership = Ownership {
                younger: ownership.younger,
                pinned: ownership.pinned,
                any_address: ownership.any_address,
                ..Ownership::USUAL
            };
        });
    }

    fn change(&self, change: impl FnOnce(&mut Ownership)) {
        self.ownership.send_modify(change);
        self.story.tell("operator", format_args!("has now {:?}", *self.ownership.borrow()));
    }
}
