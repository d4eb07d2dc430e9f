//! Two candidates with a faulty API and faulty clocks never lead at once. A failure prints the seed
//! of its round.

use std::sync::Mutex;

use k8s_openapi::jiff::SignedDuration;
use skysail_provider::Fence;
use tokio::task::JoinSet;

use super::{
    Arc, CancellationToken, Duration, Fault, RequestInfo, S, TestClock, World, conflict, internal, no_answer, sleep,
    timeout,
};

/// A small generator (`SplitMix64`).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn ms(&mut self, end: u64) -> Duration {
        Duration::from_millis(self.below(end))
    }
}

/// All fences that were ever open.
type Fences = Arc<Mutex<Vec<Fence>>>;

fn open(fences: &Fences) -> usize {
    fences.lock().unwrap().iter().filter(|fence| fence.check().is_ok()).count()
}

/// Half of all requests fail, in one of five ways.
fn bad_api(seed: u64) -> impl Fn(&RequestInfo) -> Fault + Send + Sync + 'static {
    let random = Mutex::new(Random(seed));
    move |_| {
        let mut random = random.lock().unwrap();
        match random.below(10) {
            0 => Fault::Refuse(internal()),
            1 => Fault::Refuse(conflict()),
            2 => Fault::LoseAnswer(no_answer()),
            3 => Fault::Latency(random.ms(8_000)),
            4 => Fault::DropWatchAfter(1),
            _ => Fault::None,
        }
    }
}

/// Consecutive replicas on one machine: each leads for a while, then is stopped, crashes or loses
/// the lease.
async fn replicas(world: Arc<World>, name: String, mut random: Random, fences: Fences) {
    for number in 0.. {
        let clock = TestClock {
            speed: 0.85 + f64::from(u32::try_from(random.below(30)).unwrap()) / 100.0,
            wrong_by: SignedDuration::from_hours(i64::try_from(random.below(48)).unwrap() - 24),
            ..TestClock::new()
        };
        clock.freeze(random.ms(1_000_000));
        let elector = world.elector_with(&format!("{name}{number}"), clock);
        let Some(mut leader) = elector.acquire(&CancellationToken::new()).await else { continue };
        assert_eq!(open(&fences), 0, "{name}{number} leads while another replica leads");
        fences.lock().unwrap().push(leader.fence().clone());
        if timeout(random.ms(60_000), leader.lost()).await.is_err() {
            match random.below(2) {
                0 => drop(leader.release().await),
                _ => drop(leader),
            }
        }
        sleep(random.ms(3_000)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn b19_two_candidates_never_lead_at_once() {
    for seed in 0..16 {
        eprintln!("seed {seed}");
        let world = Arc::new(World::new());
        world.disturb(bad_api(seed));
        let fences = Fences::default();
        let mut running = JoinSet::new();
        for (index, name) in ["a", "b"].into_iter().enumerate() {
            let random = Random(seed * 2 + index as u64 + 1_000);
            running.spawn(replicas(Arc::clone(&world), name.to_owned(), random, Arc::clone(&fences)));
        }
        for _ in 0..6_000 {
            sleep(S / 10).await;
            assert!(open(&fences) <= 1, "two replicas lead");
            if let Some(ended) = running.try_join_next() {
                ended.unwrap();
            }
        }
        let leaders = fences.lock().unwrap().len();
        assert!(leaders > 10, "only {leaders} leaders in ten minutes, too few for this test");
    }
}
