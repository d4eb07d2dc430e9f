//! The effects of one step, in their order.

use crate::{Effect, Offered, Refusal, Release, Reply, Report};

/// See the module.
pub(super) struct Output<R: Release> {
    pub(super) effects: Vec<Effect<R>>,
    /// The effects that come after the status is published.
    pub(super) answers: Vec<Effect<R>>,
}

impl<R: Release> Output<R> {
    pub(super) const fn new() -> Self {
        Self { effects: Vec::new(), answers: Vec::new() }
    }

    pub(super) fn report(&mut self, report: Report<R>) {
        self.effects.push(Effect::Report(report));
    }

    pub(super) fn answer(&mut self, replies: Vec<Reply>, answer: &Result<Offered, Refusal>) {
        self.answers.extend(replies.into_iter().map(|reply| Effect::Answer(reply, answer.clone())));
    }
}
