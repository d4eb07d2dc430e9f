//! What happens after all was well, on some days. Nothing fails any more, so that each effect has
//! to come promptly: no period and no backoff may hide a lost wake-up.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{CALM_MAX, Day};
use crate::{cloud::Cloud, plan::Epilogue};

/// How soon an operation has taken effect.
const PROMPT: Duration = Duration::from_mins(2);
/// Operations of [`Epilogue::Operations`].
const OPERATIONS: usize = 4;
/// The longest time between the two steps of an operation.
const SECOND_STEP: Duration = Duration::from_secs(14);
/// How long a cloud refuses the credential: the next tries are then minutes away.
const REFUSED: Duration = Duration::from_secs(200);
/// How soon after a rotation everything that was denied has been tried again.
const ROTATED: Duration = Duration::from_secs(80);
/// How long another controller writes before each patch of ours: longer than two periods of the
/// budget.
const OVERTAKEN: Duration = Duration::from_mins(4);
/// How soon a status is written again after the rival has gone: longer than the longest wait before
/// a repair, which is five minutes.
const REPAIRED: Duration = Duration::from_mins(7);
/// So many machines that the breaker's percentage and its rule for small clusters differ.
const MACHINES: usize = 7;
/// The breaker lets no more machines go by its rule for small clusters.
const GONE_MAX: usize = 10;
/// The number of nodes that the breaker has to keep.
const KEPT: usize = 2;
/// Longer than the replacement of a leader and the passes in which a machine has to be missing.
const LATE: Duration = Duration::from_mins(3);
/// How soon each process has seen a pause, and has ended the calls that had begun.
const SEEN: Duration = Duration::from_secs(10);
/// How long a pause lasts: longer than the replacement of a leader and the passes in which a
/// machine has to be missing.
const PAUSED: Duration = Duration::from_mins(4);
/// How soon the node of one missing machine is deleted.
const ONE_BY_ONE: Duration = Duration::from_secs(40);

impl Day {
    pub(super) async fn epilogue(&mut self) -> Vec<String> {
        let cloud = self.chance.number(0..=1);
        let Some(cloud) = self.site.clouds.get(cloud).cloned() else { return Vec::new() };
        match self.plan.epilogue {
            Epilogue::None => Vec::new(),
            Epilogue::Operations => self.operations_take_effect().await,
            Epilogue::Rotation => self.rotation_ends_denials(&cloud).await,
            Epilogue::ScaleIn => self.machines_go(&cloud).await,
            Epilogue::LostDeletions => self.machines_go_one_by_one(&cloud).await,
            Epilogue::Conflicts => self.another_controller_is_first(&cloud).await,
            Epilogue::Pauses => self.pauses_hold(&cloud).await,
            Epilogue::LateProvider => self.a_provider_is_late().await,
        }
    }

    async fn operations_take_effect(&mut self) -> Vec<String> {
        for number in 0..OPERATIONS {
            self.site.story.tell("calm", format_args!("operation {number} takes effect within {} s", PROMPT.as_secs()));
            self.site.referee.operation();
            self.people.act_promptly().await;
            self.pass(SECOND_STEP).await;
            let wrong = self.becomes_well(PROMPT, Self::differences).await;
            if !wrong.is_empty() {
                return told(wrong, "although nothing fails");
            }
        }
        Vec::new()
    }

    async fn rotation_ends_denials(&mut self, cloud: &Arc<Cloud>) -> Vec<String> {
        self.site.story.tell("calm", format_args!("{} refuses the credential until it is rotated", cloud.name));
        self.site.referee.operation();
        cloud.expire_token(Duration::from_hours(1));
        self.people.act_on(cloud).await;
        self.pass(REFUSED).await;
        cloud.rotate_token();
        told(self.becomes_well(ROTATED, Self::differences).await, "although the credential is rotated")
    }

    /// The budget of requests limits how often a patch is tried again.
    async fn another_controller_is_first(&mut self, cloud: &Arc<Cloud>) -> Vec<String> {
        self.site.story.tell("calm", "another controller writes before each patch of a Service or a node");
        self.site.referee.operation();
        self.weather.overtake_always(true);
        self.people.act_on(cloud).await;
        self.pass(OVERTAKEN).await;
        self.weather.overtake_always(false);
        let wrong = told(self.becomes_well(PROMPT, Self::differences).await, "although no other controller writes");
        if wrong.is_empty() { self.rival_empties_each_status().await } else { wrong }
    }

    /// The Services are paused one by one, or their provider is; new processes start meanwhile. The
    /// referee checks the calls.
    async fn pauses_hold(&mut self, cloud: &Arc<Cloud>) -> Vec<String> {
        self.site.referee.operation();
        self.people.act_on(cloud).await;
        let wrong = told(self.becomes_well(PROMPT, Self::differences).await, "although nothing fails");
        if !wrong.is_empty() {
            return wrong;
        }
        let provider = self.site.clouds.iter().position(|one| one.name == cloud.name);
        let provider = provider.filter(|_| self.pauses.once_in(0.5));
        let is_provider = provider.is_some();
        self.site.story.tell("calm", format_args!("a pause of {} begins, of its provider: {is_provider}", cloud.name));
        self.site.referee.operation();
        self.operator.pause(provider);
        let services = self.people.pause_late(!is_provider).await;
        self.pass(SEEN).await;
        self.site.referee.pause(services, provider.map(|_| cloud.name));
        self.site.referee.operation();
        self.people.ask_for_late_changes(cloud).await;
        self.pass(SEEN).await;
        self.restart_all();
        self.pass(PAUSED).await;
        let late = self.site.referee.object("/api/v1/namespaces/default/services/late-1");
        self.site.story.tell("calm", "the pause ends");
        self.site.referee.operation();
        self.site.referee.pause(BTreeSet::new(), None);
        self.operator.pause(None);
        self.people.pause_late(false).await;
        if late.is_none() {
            return vec!["a paused Service was deleted and has not waited for the end of its pause".to_owned()];
        }
        told(self.becomes_well(PROMPT, Self::differences).await, "although the pause has ended")
    }

    /// The budget of requests limits how often a status is written again.
    async fn rival_empties_each_status(&mut self) -> Vec<String> {
        self.site.story.tell("calm", "the rival empties the status of a Service after each write");
        self.site.referee.operation();
        self.rival.act_until(Instant::now() + OVERTAKEN);
        self.people.empty_late_statuses().await;
        self.pass(OVERTAKEN).await;
        told(self.becomes_well(REPAIRED, Self::differences).await, "although the rival is gone")
    }

    /// The provider finds all other machines, and most are left: the breaker lets these go, though
    /// they are more than its percentage.
    async fn machines_go(&mut self, cloud: &Arc<Cloud>) -> Vec<String> {
        let wrong = self.breakers_forget(cloud).await;
        if !wrong.is_empty() {
            return wrong;
        }
        let gone = GONE_MAX.min((cloud.state().machines.len() - 1) / 2);
        self.people.delete_machines(cloud, gone).await;
        told(self.becomes_well(PROMPT, Self::differences).await, "although less than half of the machines went")
    }

    /// Each deletion is allowed by itself; together they are more than the breaker allows, also
    /// where an operator edits the provider after each.
    async fn machines_go_one_by_one(&mut self, cloud: &Arc<Cloud>) -> Vec<String> {
        let wrong = self.breakers_forget(cloud).await;
        if !wrong.is_empty() {
            return wrong;
        }
        let names = || cloud.state().machines.into_values().map(|machine| machine.name).collect::<BTreeSet<_>>();
        let (before, percent) = (names(), usize::from(self.plan.settings.node_deletion_percent_max));
        let allowed = (before.len() * percent / 100).max(GONE_MAX.min((before.len() - 1) / 2));
        self.weather.lose_node_deletions();
        for _ in 0..allowed + KEPT {
            self.people.delete_machines(cloud, 1).await;
            self.pass(ONE_BY_ONE).await;
            self.operator.edit_harmlessly();
        }
        let after = names();
        let is_there = |name: &&String| self.site.referee.object(&format!("/api/v1/nodes/{name}")).is_some();
        let kept = before.difference(&after).filter(is_there).count();
        if kept < KEPT {
            return vec![format!(
                "of {} machines {} went, and the breaker lets {allowed} go: {KEPT} of their nodes must be left, and {kept} are",
                before.len(),
                allowed + KEPT
            )];
        }
        Vec::new()
    }

    /// A node of the first provider is not Ready meanwhile, so that the provider with the scheme is
    /// asked for the machine. The younger one does not know the machine, and the breaker allows the
    /// deletion of one node.
    async fn a_provider_is_late(&mut self) -> Vec<String> {
        let Some(first) = self.site.clouds.first().cloned() else { return Vec::new() };
        self.people.make_machines(&first, MACHINES).await;
        self.site.referee.claims_change();
        self.operator.have_younger();
        self.follow_claims().await;
        let wrong = self.becomes_well(CALM_MAX, Self::differences).await;
        if !wrong.is_empty() {
            return told(wrong, "although only a provider was added");
        }
        self.site.story.tell("calm", "no release of the first provider can be loaded, and all start again");
        first.refuse_loads(true);
        self.people.silence_kubelet(&first, true).await;
        self.restart_all();
        self.pass(LATE).await;
        first.refuse_loads(false);
        self.people.silence_kubelet(&first, false).await;
        told(self.becomes_well(CALM_MAX, Self::differences).await, "although the first provider serves again")
    }

    /// Makes some machines, and new processes: the breaker of a new process knows of no earlier
    /// deletion.
    async fn breakers_forget(&mut self, cloud: &Arc<Cloud>) -> Vec<String> {
        self.people.make_machines(cloud, MACHINES).await;
        self.restart_all();
        told(self.becomes_well(CALM_MAX, Self::differences).await, "although all processes were started again")
    }
}

fn told(wrong: Vec<String>, when: &str) -> Vec<String> {
    wrong.into_iter().map(|wrong| format!("{when}: {wrong}")).collect()
}
