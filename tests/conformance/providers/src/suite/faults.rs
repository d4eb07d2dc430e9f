//! Requests that fail at every place: the provider says why, and the next call completes the work.

use std::{
    fmt::Write as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context as _, Result, bail, ensure};
use skysail_provider::{Code, Error, NodeSet, Provider as _, Service};
use tokio::time::Instant;

use super::{
    accounts::{Cases, in_accounts},
    balancers::{two_nodes, web},
    same,
};
use crate::{
    cloud::{Balancers, Change},
    proxy::{Judge, Reply, Verdict},
    world::{CLUSTER, SETTLED_WITHIN, World, line, one_less},
};

/// More requests than one Service needs: a provider that comes so far goes round in a circle.
const PLACES_MAX: usize = 200;

/// A failure of one request, and the codes that the provider may return for it. No code: whatever
/// the provider makes of it, as long as the next call completes the work.
struct Failure {
    name: &'static str,
    judge: Judge,
    codes: &'static [Code],
    writes_only: bool,
    /// Whether the later requests of the call fail, too: the provider cannot help itself.
    lasts: bool,
    /// The first request that fails so, and the distance to the next one, which is another test.
    first: usize,
    step: usize,
}

impl Failure {
    /// Of each request.
    fn new(name: &'static str, judge: Judge, codes: &'static [Code]) -> Self {
        Self { name, judge, codes, writes_only: false, lasts: false, first: 0, step: 1 }
    }

    /// Of each request, in the same way.
    fn always(name: &'static str, verdict: Verdict, codes: &'static [Code]) -> Self {
        Self::new(name, Arc::new(move |_| verdict.clone()), codes)
    }

    fn of<C: Balancers>() -> Vec<Self> {
        const BROKEN: &[Code] = &[Code::Unavailable, Code::RetryAfter];
        const NOT_UNDERSTOOD: &[Code] = &[Code::Unavailable, Code::Internal, Code::RetryAfter];
        let html = "<html><head><title>Maintenance</title></head><body>Back soon</body></html>";
        let answer = |status, body| Verdict::Answer(Reply::new(status, body));
        let throttled: Judge = Arc::new(|request| Verdict::Answer(C::throttled(request)));
        let exhausted: Judge = Arc::new(|request| C::quota_exceeded(request).map_or(Verdict::Pass, Verdict::Answer));
        let mut answers = vec![
            Self::always("500", answer(500, html), BROKEN),
            Self::always("503", answer(503, ""), BROKEN),
            Self::always("200 with HTML", answer(200, html), NOT_UNDERSTOOD),
            Self::new("the rate limit", throttled, &[Code::RetryAfter]),
        ];
        if C::ANSWERS_IN_TURN {
            let step = answers.len();
            for (first, answer) in answers.iter_mut().enumerate() {
                (answer.first, answer.step) = (first, step);
            }
        }
        let mut all = vec![
            Self::always("a cut connection", Verdict::CutBefore, BROKEN),
            // A read whose answer is lost is to the provider and to the cloud a cut connection.
            Self { codes: BROKEN, ..Self::lost_answer() },
            Self { writes_only: true, lasts: true, ..Self::new("an exhausted quota", exhausted, &[Code::Exhausted]) },
        ];
        all.append(&mut answers);
        all
    }

    /// The requests that fail so, each in a call of its own.
    fn places(&self) -> impl Iterator<Item = usize> + use<> {
        (self.first..).step_by(self.step)
    }

    /// A write whose answer is lost.
    fn lost_answer() -> Self {
        Self { writes_only: true, ..Self::always("a lost answer", Verdict::CutAfter, &[]) }
    }
}

/// One request fails, at each place in turn: `ensure` returns the right code, and the next one
/// makes what an undisturbed one makes.
///
/// # Errors
/// The provider does otherwise.
pub async fn the_next_ensure_completes_an_interrupted_one<C: Balancers + 'static>() -> Result<()> {
    let (world, nodes, empty) = two_nodes::<C>().await?;
    let service = web(&world.cloud, "web");
    world.ensure(&service, &nodes).await?;
    let whole = world.cloud.balancers().await?;
    world.ensure_deleted(&service).await?;
    for failure in Failure::of::<C>() {
        for place in failure.places() {
            let there = format!("{} at request {place} of `ensure`", failure.name);
            if !interrupted(&world, &failure, place, async || {
                world.ensure_once(CLUSTER, &service, &nodes).await.map(drop)
            })
            .await
            .with_context(|| there.clone())?
            {
                world.ensure_deleted(&service).await?;
                break;
            }
            world.ensure(&service, &nodes).await.with_context(|| format!("after {there}"))?;
            same(&format!("the cloud after {there} and another `ensure`"), &world.cloud.balancers().await?, &whole)?;
            world.ensure_deleted(&service).await.with_context(|| format!("after {there}"))?;
            same(&format!("the cloud after {there} and a deletion"), &world.cloud.balancers().await?, &empty)?;
        }
    }
    Ok(())
}

/// One request of an `update` fails, at each place in turn: the next one sets the backends.
///
/// # Errors
/// The provider does otherwise.
pub async fn the_next_update_completes_an_interrupted_one<C: Balancers + 'static>() -> Result<()> {
    let (world, nodes, empty) = two_nodes::<C>().await?;
    let (service, fewer) = (web(&world.cloud, "web"), one_less(&nodes));
    world.ensure(&service, &nodes).await?;
    let of_two = world.cloud.balancers().await?;
    world.update(&service, &fewer).await?;
    let of_one = world.cloud.balancers().await?;
    let balancers = world.provider.load_balancers().context("the component has no load balancers")?;
    for failure in Failure::of::<C>() {
        for place in failure.places() {
            let there = format!("{} at request {place} of `update`", failure.name);
            let update = async || balancers.update(&world.call, CLUSTER, &service, &nodes).await;
            let more = interrupted(&world, &failure, place, update).await.with_context(|| there.clone())?;
            world.update(&service, &nodes).await.with_context(|| format!("after {there}"))?;
            same(&format!("the cloud after {there} and another `update`"), &world.cloud.balancers().await?, &of_two)?;
            world.update(&service, &fewer).await.with_context(|| format!("after {there}"))?;
            same(&format!("the cloud after {there}, with one node less"), &world.cloud.balancers().await?, &of_one)?;
            if !more {
                break;
            }
        }
    }
    world.ensure_deleted(&service).await?;
    same("the cloud at the end", &world.cloud.balancers().await?, &empty)
}

/// A Service is deleted after an interrupted `ensure`: nothing is left.
///
/// # Errors
/// The provider does otherwise.
pub async fn a_deletion_after_an_interrupted_ensure_leaves_nothing<C: Balancers + 'static>() -> Result<()> {
    let (world, nodes, empty) = two_nodes::<C>().await?;
    let service = web(&world.cloud, "web");
    let failure = Failure::lost_answer();
    for place in failure.places() {
        let more =
            interrupted(&world, &failure, place, async || world.ensure_once(CLUSTER, &service, &nodes).await.map(drop))
                .await?;
        world.ensure_deleted(&service).await.with_context(|| format!("after a lost answer at request {place}"))?;
        let what = format!("the cloud after a lost answer at request {place} and a deletion");
        same(&what, &world.cloud.balancers().await?, &empty)?;
        if !more {
            break;
        }
    }
    Ok(())
}

/// One request of a deletion fails, at each place in turn: the next deletion leaves nothing.
///
/// # Errors
/// The provider does otherwise.
pub async fn the_next_deletion_completes_an_interrupted_one<C: Balancers + 'static>() -> Result<()> {
    let (world, nodes, empty) = two_nodes::<C>().await?;
    let service = web(&world.cloud, "web");
    // No quota is in the way of a deletion.
    for failure in Failure::of::<C>().into_iter().filter(|failure| failure.codes != [Code::Exhausted]) {
        for place in failure.places() {
            let there = format!("{} at request {place} of the deletion", failure.name);
            world.ensure(&service, &nodes).await?;
            let more =
                interrupted(&world, &failure, place, async || world.ensure_deleted_once(CLUSTER, &service).await)
                    .await
                    .with_context(|| there.clone())?;
            world.ensure_deleted(&service).await.with_context(|| format!("after {there}"))?;
            same(&format!("the cloud after {there} and another one"), &world.cloud.balancers().await?, &empty)?;
            if !more {
                break;
            }
        }
    }
    Ok(())
}

/// One request of a change fails, at each place in turn, for each change that the cloud can carry
/// out: the next `ensure` makes what an undisturbed one makes.
///
/// # Errors
/// The provider does otherwise.
pub async fn the_next_ensure_completes_an_interrupted_change<C: Balancers + 'static>() -> Result<()> {
    in_accounts(C::start().await?.changes(), interrupt_each_change::<C>).await
}

/// Interrupts the changes that are left, until none is; the value has the problems.
async fn interrupt_each_change<C: Balancers + 'static>(cases: Arc<Cases<Change>>) -> Result<String> {
    let ((world, nodes, _), mut found) = (two_nodes::<C>().await?, String::new());
    let service = web(&world.cloud, "web");
    while let Some((name, change)) = cases.take() {
        let mut changed = service.clone();
        change(&mut changed);
        if let Err(error) = interrupted_change(&world, &nodes, (&service, &changed)).await {
            write!(found, "\n{name}: {error:#}")?;
        }
        world.ensure_deleted(&service).await?;
    }
    Ok(found)
}

async fn interrupted_change<C: Balancers>(
    world: &World<C>,
    nodes: &NodeSet,
    (service, changed): (&Service, &Service),
) -> Result<()> {
    let failure = Failure::lost_answer();
    world.ensure(changed, nodes).await?;
    let whole = world.cloud.balancers().await?;
    for place in failure.places() {
        world.ensure(service, nodes).await?;
        let more =
            interrupted(world, &failure, place, async || world.ensure_once(CLUSTER, changed, nodes).await.map(drop))
                .await?;
        world.ensure(changed, nodes).await.with_context(|| format!("after a lost answer at request {place}"))?;
        same(&format!("the cloud after a lost answer at request {place}"), &world.cloud.balancers().await?, &whole)?;
        if !more {
            break;
        }
    }
    Ok(())
}

/// A cloud whose lists lag behind: the first equal read after a write shows the state at the time
/// of the equal read before. The calls end with one whole load balancer, and a deletion with none.
///
/// # Errors
/// The provider does otherwise.
pub async fn a_cloud_whose_lists_lag_behind_gets_no_second_load_balancer<C: Balancers + 'static>() -> Result<()> {
    let (world, nodes, empty) = two_nodes::<C>().await?;
    let service = web(&world.cloud, "web");
    let whole = undisturbed(&world, &service, &nodes).await?;
    world.proxy.lag_behind(C::is_write);
    // A stale read may make a write that the cloud refuses, and old lists may show the load
    // balancer that is deleted; the controllers repeat the call.
    let mut last = Ok(());
    for _ in 0..20 {
        last = world.ensure(&service, &nodes).await.map(drop);
        if last.is_ok() && world.cloud.balancers().await? == whole {
            break;
        }
    }
    last.context("with lists that lag behind")?;
    same("the cloud after `ensure` with lists that lag behind", &world.cloud.balancers().await?, &whole)?;
    for _ in 0..20 {
        if world.ensure_deleted(&service).await.is_ok() {
            break;
        }
    }
    world.proxy.pass();
    world.ensure_deleted(&service).await?;
    same("the cloud after the deletion", &world.cloud.balancers().await?, &empty)
}

/// Repeats the call until the request at this place has failed, and checks what the provider made
/// of it. False if the call ended before.
async fn interrupted<C: Balancers>(
    world: &World<C>,
    failure: &Failure,
    place: usize,
    mut call: impl AsyncFnMut() -> Result<(), Error>,
) -> Result<bool> {
    ensure!(place < PLACES_MAX, "the provider sent {PLACES_MAX} requests for one Service and did not finish");
    let (judge, writes_only, lasts) = (Arc::clone(&failure.judge), failure.writes_only, failure.lasts);
    let met = Arc::new(Mutex::new(None));
    let (counted, noted) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&met));
    let counts = Arc::clone(&counted);
    world.proxy.decide(move |request| {
        if writes_only && !C::is_write(request) {
            return Verdict::Pass;
        }
        let number = counts.fetch_add(1, Ordering::SeqCst);
        if number < place || (number > place && !lasts) {
            return Verdict::Pass;
        }
        let verdict = judge(request);
        if !matches!(verdict, Verdict::Pass) {
            noted.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(request.clone());
        }
        verdict
    });
    let end = Instant::now() + SETTLED_WITHIN;
    let (result, met) = loop {
        let result = call().await;
        let met = met.lock().unwrap_or_else(PoisonError::into_inner).take();
        let waits = result.as_ref().is_err_and(|error| error.code == Code::RetryAfter);
        if met.is_some() || !waits || Instant::now() > end {
            break (result, met);
        }
        wait_before_the_next_call::<C>().await;
    };
    world.proxy.pass();
    let Some(request) = met else {
        result.context("no request failed, and the call did not succeed")?;
        // A request that has no such failure was passed.
        return Ok(counted.load(Ordering::SeqCst) > place);
    };
    match result {
        // A read that only saves work may fail.
        Ok(()) => ensure!(!C::is_write(&request), "{} failed, and the call succeeded", line(&request)),
        Err(error) if failure.codes.is_empty() || failure.codes.contains(&error.code) => {}
        Err(error) => bail!("{} failed, and the call returned {:?}: {error}", line(&request), error.code),
    }
    Ok(true)
}

/// The cloud needs some time before the next call can do more.
async fn wait_before_the_next_call<C: Balancers>() {
    tokio::time::sleep(C::WAIT_MAX).await;
}

async fn undisturbed<C: Balancers>(world: &World<C>, service: &Service, nodes: &NodeSet) -> Result<Vec<String>> {
    world.ensure(service, nodes).await?;
    let whole = world.cloud.balancers().await?;
    world.ensure_deleted(service).await?;
    Ok(whole)
}
