//! Where a call's fuel went, by the functions of the guest: for `skysail call --profile`.
//!
//! # Flow
//! The store yields after each [`YIELD`] units of fuel. At each crossing from the guest to the
//! host, at a yield as at a call of an import, the functions on the guest's stack are charged with
//! the fuel since the last crossing. No clock is involved: equal calls have equal profiles, and no
//! unit of fuel is lost. What the host charges for an import ([`crate::fuel_charge`]) counts for
//! [`HOST`], above the function that called the import.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use skysail_provider::text::one_line;
use wasmtime::WasmBacktrace;

use crate::{
    backtrace::readable,
    symbols::{MODULE, Symbols},
};

/// Fuel between two looks at the stack, at first.
pub(crate) const YIELD: u64 = 1_000;
/// After so many looks in one call the distance between two is doubled: a look takes ten
/// microseconds, and a thousand million units would take a million.
const LOOKS_MAX: u32 = 20_000;
/// Different stacks of a call that are kept apart.
const STACKS_MAX: usize = 50_000;
/// The longest name of a function, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// What the host does for an import.
const HOST: &str = "(host)";
/// Fuel of stacks beyond [`STACKS_MAX`].
const REST: &str = "(other stacks)";

/// Fuel by stack, of all calls of one function under one [`crate::CallRecorder`].
#[derive(Debug)]
pub struct Profile {
    function: String,
    /// From the outermost function to the innermost, separated by `;`.
    stacks: Mutex<BTreeMap<String, u64>>,
}

impl Profile {
    /// Of the calls of this function: `instances.describe`.
    #[must_use]
    pub const fn new(function: String) -> Self {
        Self { function, stacks: Mutex::new(BTreeMap::new()) }
    }

    /// One line for each stack, from the outermost function to the innermost, and its fuel:
    /// `instances.describe;machines::list;serde_json::from_slice 81234`. Many tools read this form.
    #[must_use]
    pub fn folded(&self) -> String {
        self.stacks().iter().map(|(stack, fuel)| format!("{stack} {fuel}\n")).collect()
    }

    /// Fuel by stack, each from the outermost function to the innermost.
    #[must_use]
    pub fn by_stack(&self) -> Vec<(Vec<String>, u64)> {
        let split = |stack: &String| stack.split(';').map(str::to_owned).collect();
        self.stacks().iter().map(|(stack, fuel)| (split(stack), *fuel)).collect()
    }

    fn stacks(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.stacks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether calls of this function are profiled.
    pub(crate) fn is_of(&self, function: &str) -> bool {
        self.function == function
    }

    /// Adds a call that has ended with this much fuel left.
    pub(crate) fn add(&self, call: ProfileOfCall, left: u64, symbols: Option<&Symbols>) {
        let (function, ProfileOfCall { stacks, names, rest, fuel, .. }) = (&self.function, call);
        let name = |key: &Key| match (key, names.get(key)) {
            (Key::Host, _) => HOST.to_owned(),
            (_, Some(name)) => part(name),
            (Key::Main(number), None) => {
                symbols.and_then(|symbols| symbols.function(*number)).map_or_else(|| format!("function {number}"), part)
            }
            (Key::Other(number), None) => format!("function {number} of another module"),
        };
        let mut all = self.stacks();
        let mut add = |stack: String, fuel: u64| {
            if fuel > 0 {
                let sum: &mut u64 = all.entry(stack).or_default();
                *sum = sum.saturating_add(fuel);
            }
        };
        for (keys, fuel) in stacks {
            let names = keys.iter().rev().map(&name);
            add(std::iter::once(function.clone()).chain(names).collect::<Vec<_>>().join(";"), fuel);
        }
        add(format!("{function};{REST}"), rest);
        // From the last crossing to the end, at which no stack is left.
        add(function.clone(), fuel.saturating_sub(left));
    }
}

/// A name as a part of a line.
fn part(name: &str) -> String {
    one_line(&readable(name), NAME_BYTES_MAX).replace(';', ":")
}

/// The profile of a call that runs.
#[derive(Debug)]
pub(crate) struct ProfileOfCall {
    /// From the innermost function to the outermost.
    stacks: HashMap<Box<[Key]>, u64>,
    /// Of the functions that have one in the component.
    names: HashMap<Key, String>,
    rest: u64,
    /// Left at the last look.
    fuel: u64,
    looks: u32,
    distance: u64,
}

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// A function whose name is in the sidecar.
    Main(u32),
    Other(u32),
    Host,
}

impl ProfileOfCall {
    /// A call that begins with this much fuel.
    pub(crate) fn new(fuel: u64) -> Self {
        Self { stacks: HashMap::new(), names: HashMap::new(), rest: 0, fuel, looks: 0, distance: YIELD }
    }

    /// Whether a stack has to be taken, at a crossing with this much fuel left.
    pub(crate) const fn is_due(&self, left: u64) -> bool {
        self.fuel.saturating_sub(left) >= self.distance / 2
    }

    /// Charges a stack with the fuel since the last look.
    pub(crate) fn look(&mut self, stack: &WasmBacktrace, left: u64) {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_MAX) {
            self.distance = self.distance.saturating_mul(2);
        }
        let fuel = self.fuel.saturating_sub(left);
        self.fuel = left;
        let keys = self.keys(stack, None);
        self.charge(keys, fuel);
    }

    /// Notes what the host has charged for an import.
    pub(crate) fn host(&mut self, stack: &WasmBacktrace, fuel: u64) {
        let keys = self.keys(stack, Some(Key::Host));
        self.charge(keys, fuel);
        self.fuel = self.fuel.saturating_sub(fuel);
    }

    fn charge(&mut self, keys: Box<[Key]>, fuel: u64) {
        if let Some(sum) = self.stacks.get_mut(&keys) {
            *sum = sum.saturating_add(fuel);
        } else if self.stacks.len() < STACKS_MAX {
            self.stacks.insert(keys, fuel);
        } else {
            self.rest = self.rest.saturating_add(fuel);
        }
    }

    fn keys(&mut self, stack: &WasmBacktrace, innermost: Option<Key>) -> Box<[Key]> {
        let names = &mut self.names;
        let frames = stack.frames().iter().map(|frame| {
            let number = frame.func_index();
            let is_main = frame.module().name() == Some(MODULE);
            let key = if is_main { Key::Main(number) } else { Key::Other(number) };
            if let Some(name) = frame.func_name() {
                names.entry(key).or_insert_with(|| name.to_owned());
            }
            key
        });
        innermost.into_iter().chain(frames).collect()
    }
}
