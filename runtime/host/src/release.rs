//! One immutable component, compiled and linked.

use std::{
    fmt,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use skysail_provider::Interface;
use skysail_slot::{CallHistory, digest_of, digest_text};
use wasmtime::component::{Component, InstancePre};

use crate::{
    Limits, Sandbox,
    admission::version_of,
    bindings::{
        LEGACY_PACKAGE, PACKAGE,
        exports::skysail::{legacy, provider as exports},
    },
    cache::Cache,
    call_statistics::{CallStatistics, FunctionCalls},
    imports,
    limits::{MEMORIES_MAX, TABLES_MAX},
    store::CallState,
};

/// The release cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// Precompiled code is native code, and is accepted only from the compile jail of this process.
    #[error(
        "the component is precompiled by wasmtime, and native code is never accepted; offer the .wasm file that it was compiled from"
    )]
    Precompiled,
    /// Not a component, or not a valid one.
    #[error("cannot compile the component")]
    Compile(#[source] wasmtime::Error),
    /// The machine code of the compile jail does not match this engine.
    #[error(
        "cannot load the compiled component; check that the machine has free memory, and report the error if it repeats"
    )]
    Load(#[source] wasmtime::Error),
    /// The component declares more memories than the sandbox allows.
    #[error("the component has {count} memories, and at most {MEMORIES_MAX} are allowed; build it with fewer memories")]
    Memories {
        /// Declared.
        count: u32,
    },
    /// The component declares more tables than the sandbox allows.
    #[error("the component has {count} tables, and at most {TABLES_MAX} are allowed; build it with fewer tables")]
    Tables {
        /// Declared.
        count: u32,
    },
    /// The initial size of one memory exceeds the limit for all memories of a call.
    #[error(
        "a memory of the component has an initial size of {bytes} bytes, and the limit memoryBytes for all memories of a call is {max}; build it with a smaller initial memory, or raise the limit"
    )]
    MemoryBytes {
        /// Declared.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// The initial size of one table exceeds the limit for all tables of a call.
    #[error(
        "a table of the component has an initial size of {elements} elements, and the limit tableElements for all tables of a call is {max}; build it with a smaller table, or raise the limit"
    )]
    TableElements {
        /// Declared.
        elements: u64,
        /// The limit.
        max: u64,
    },
    /// The component imports modules or components, so its resource requirements are unknown before
    /// it runs.
    #[error("the component imports core modules, which the host does not provide; link the modules into the component")]
    ImportsModules,
    /// An import is unknown or has another type.
    #[error(
        "cannot link the component: this host lacks one of its imports, or has it with another type; build the component against skysail:provider@0.1.0 (skysail inspect FILE lists the imports)"
    )]
    Link(#[source] wasmtime::Error),
    /// The required interface `identity` is not exported.
    #[error("the component does not export skysail:provider/identity@0.1.0, so it is not a provider")]
    NoIdentity,
    /// An export has a name of the contract, but another type.
    #[error(
        "the component exports {interface} with a type that differs from the contract; build the component against skysail:provider@0.1.0"
    )]
    Export {
        /// `identity` or one of [`Interface::name`].
        interface: &'static str,
        /// What is different.
        #[source]
        source: wasmtime::Error,
    },
}

/// Native code for a component, compiled by this program: in its compile jail or in this process.
/// It cannot be created from other bytes.
pub struct CompiledComponent {
    code: Mutex<Code>,
}

/// Machine code takes megabytes, so it is held only once: as bytes until the first load, then as
/// wasmtime's `Component`.
enum Code {
    Native(Vec<u8>),
    Loaded(Component),
}

impl CompiledComponent {
    /// Takes machine code of this process's compile jail. Never pass other bytes: the code is
    /// executed.
    pub(crate) const fn from_jail(native: Vec<u8>) -> Self {
        Self { code: Mutex::new(Code::Native(native)) }
    }

    /// Bytes of native code.
    #[must_use]
    pub fn size(&self) -> usize {
        match &*self.code() {
            Code::Native(native) => native.len(),
            Code::Loaded(component) => {
                let Range { start, end } = component.image_range();
                end.addr() - start.addr()
            }
        }
    }

    /// Compiles in this process, without a bound on time or memory: for tests, tools and components
    /// that are trusted.
    ///
    /// # Errors
    /// [`ReleaseError::Precompiled`], [`ReleaseError::Compile`].
    pub fn in_process(engine: &wasmtime::Engine, wasm: &[u8]) -> Result<Self, ReleaseError> {
        if wasmtime::Engine::detect_precompiled(wasm).is_some() {
            return Err(ReleaseError::Precompiled);
        }
        engine.precompile_component(wasm).map(Self::from_jail).map_err(ReleaseError::Compile)
    }

    /// Loads the component into this engine. The engine that loaded it first shares the code, any
    /// other engine gets a copy.
    fn load(&self, engine: &wasmtime::Engine) -> wasmtime::Result<Component> {
        let mut code = self.code();
        match &*code {
            Code::Loaded(component) if wasmtime::Engine::same(component.engine(), engine) => Ok(component.clone()),
            Code::Loaded(component) => deserialize(engine, &component.serialize()?),
            Code::Native(native) => {
                let component = deserialize(engine, native)?;
                *code = Code::Loaded(component.clone());
                Ok(component)
            }
        }
    }

    fn code(&self) -> MutexGuard<'_, Code> {
        self.code.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds the lock, as a load does.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Sized + '_ {
        self.code()
    }
}

/// Loads the machine code of a [`CompiledComponent`]; never pass other bytes.
fn deserialize(engine: &wasmtime::Engine, native: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: only this program creates a `CompiledComponent`, with the same version of wasmtime;
    // bytes of a vendor's file never become one.
    #[expect(unsafe_code, reason = "wasmtime's own output; see above")]
    unsafe {
        Component::deserialize(engine, native)
    }
}

/// One immutable component, linked for the engine of one sandbox, and the state that its calls
/// share with each other and with no other release.
pub struct Release {
    digest: Arc<str>,
    cache: Arc<Cache>,
    call_history: Arc<CallHistory>,
    statistics: CallStatistics,
    instance_pre: InstancePre<CallState>,
    exports: Exports,
}

/// The indices of the exported functions of each interface; none for an interface that the
/// component does not export.
pub(crate) struct Exports {
    pub(crate) identity: exports::identity::GuestIndices,
    pub(crate) load_balancers: Option<exports::load_balancers::GuestIndices>,
    pub(crate) load_balancer_inventory: Option<exports::load_balancer_inventory::GuestIndices>,
    pub(crate) instances: Option<exports::instances::GuestIndices>,
    pub(crate) routes: Option<exports::routes::GuestIndices>,
    pub(crate) zones: Option<legacy::zones::GuestIndices>,
    pub(crate) clusters: Option<legacy::clusters::GuestIndices>,
    pub(crate) node_legacy: Option<legacy::node_legacy::GuestIndices>,
    pub(crate) persistent_volume_labels: Option<exports::persistent_volume_labels::GuestIndices>,
}

impl Release {
    /// Links a compiled component. `digest` is that of the `.wasm` file: `sha256:` and 64
    /// hexadecimal digits.
    ///
    /// # Errors
    /// [`ReleaseError`]: all but `Precompiled` and `Compile`.
    pub fn new(sandbox: &Sandbox, compiled: &CompiledComponent, digest: &str) -> Result<Self, ReleaseError> {
        let component = compiled.load(sandbox.wasmtime()).map_err(ReleaseError::Load)?;
        // Do it now, so that the first call is not slower.
        component.initialize_copy_on_write_image().map_err(ReleaseError::Load)?;
        check_resources(&component, sandbox.limits())?;
        let linker = imports::linker(sandbox.wasmtime()).map_err(ReleaseError::Link)?;
        let instance_pre = linker.instantiate_pre(&component).map_err(ReleaseError::Link)?;
        let exports = Exports::of(&instance_pre)?;
        let cache = Arc::new(Cache::new(sandbox.limits()));
        Ok(Self {
            digest: digest.into(),
            cache,
            call_history: Arc::default(),
            statistics: CallStatistics::default(),
            instance_pre,
            exports,
        })
    }

    /// Compiles and links a `.wasm` file in this process: for tests, tools and components that are
    /// trusted.
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub fn from_wasm(sandbox: &Sandbox, wasm: &[u8]) -> Result<Self, ReleaseError> {
        let compiled = CompiledComponent::in_process(sandbox.wasmtime(), wasm)?;
        Self::new(sandbox, &compiled, &digest_text(&digest_of(wasm)))
    }

    /// Digest of the `.wasm` file: `sha256:…`.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The interfaces that the component exports besides `identity`, in the order of
    /// [`Interface::ALL`].
    #[must_use]
    pub fn interfaces(&self) -> Vec<Interface> {
        Interface::ALL.into_iter().filter(|interface| self.exports.has(*interface)).collect()
    }

    /// Statistics of the calls since the release was loaded, one entry for each called function.
    #[must_use]
    pub fn calls(&self) -> Vec<FunctionCalls> {
        self.statistics.calls()
    }

    pub(crate) const fn shared_digest(&self) -> &Arc<str> {
        &self.digest
    }

    pub(crate) const fn call_history(&self) -> &Arc<CallHistory> {
        &self.call_history
    }

    pub(crate) const fn statistics(&self) -> &CallStatistics {
        &self.statistics
    }

    pub(crate) const fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    pub(crate) const fn instance_pre(&self) -> &InstancePre<CallState> {
        &self.instance_pre
    }

    pub(crate) const fn exports(&self) -> &Exports {
        &self.exports
    }
}

impl fmt::Debug for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Release").field("digest", &self.digest).field("interfaces", &self.interfaces()).finish()
    }
}

/// The pool would refuse such a component, too, but with a less helpful message; without a pool
/// each call would fail.
fn check_resources(component: &Component, limits: &Limits) -> Result<(), ReleaseError> {
    /// Bytes of a wasm page; custom page sizes are disabled.
    const PAGE_BYTES: u64 = 64 << 10;
    let required = component.resources_required().ok_or(ReleaseError::ImportsModules)?;
    if required.num_memories > MEMORIES_MAX {
        return Err(ReleaseError::Memories { count: required.num_memories });
    }
    if required.num_tables > TABLES_MAX {
        return Err(ReleaseError::Tables { count: required.num_tables });
    }
    let bytes = required.max_initial_memory_size.unwrap_or_default().saturating_mul(PAGE_BYTES);
    if bytes > limits.memory_bytes {
        return Err(ReleaseError::MemoryBytes { bytes, max: limits.memory_bytes });
    }
    let elements = required.max_initial_table_size.unwrap_or_default();
    if elements > limits.table_elements {
        return Err(ReleaseError::TableElements { elements, max: limits.table_elements });
    }
    Ok(())
}

impl Exports {
    fn of(pre: &InstancePre<CallState>) -> Result<Self, ReleaseError> {
        macro_rules! indices {
            ($package:ident::$module:ident, $interface:expr) => {{
                let (package, interface) = $interface;
                if is_exported(pre, package, interface) {
                    let indices = $package::$module::GuestIndices::new(pre);
                    Some(indices.map_err(|source| ReleaseError::Export { interface, source })?)
                } else {
                    None
                }
            }};
        }
        let named = |interface: Interface| (package_of(interface), interface.name());
        Ok(Self {
            identity: indices!(exports::identity, (PACKAGE, "identity")).ok_or(ReleaseError::NoIdentity)?,
            load_balancers: indices!(exports::load_balancers, named(Interface::LoadBalancers)),
            load_balancer_inventory: indices!(
                exports::load_balancer_inventory,
                named(Interface::LoadBalancerInventory)
            ),
            instances: indices!(exports::instances, named(Interface::Instances)),
            routes: indices!(exports::routes, named(Interface::Routes)),
            zones: indices!(legacy::zones, named(Interface::Zones)),
            clusters: indices!(legacy::clusters, named(Interface::Clusters)),
            node_legacy: indices!(legacy::node_legacy, named(Interface::NodeLegacy)),
            persistent_volume_labels: indices!(
                exports::persistent_volume_labels,
                named(Interface::PersistentVolumeLabels)
            ),
        })
    }

    pub(crate) const fn has(&self, interface: Interface) -> bool {
        match interface {
            Interface::LoadBalancers => self.load_balancers.is_some(),
            Interface::LoadBalancerInventory => self.load_balancer_inventory.is_some(),
            Interface::Instances => self.instances.is_some(),
            Interface::Routes => self.routes.is_some(),
            Interface::Zones => self.zones.is_some(),
            Interface::Clusters => self.clusters.is_some(),
            Interface::NodeLegacy => self.node_legacy.is_some(),
            Interface::PersistentVolumeLabels => self.persistent_volume_labels.is_some(),
        }
    }
}

/// The package of the contract that defines the interface.
const fn package_of(interface: Interface) -> &'static str {
    if interface.is_for_tools() { LEGACY_PACKAGE } else { PACKAGE }
}

/// Whether the component exports the interface, with any type.
fn is_exported(pre: &InstancePre<CallState>, package: &str, interface: &str) -> bool {
    let Some(version) = version_of(package) else { return false };
    pre.component().get_export_index(None, format!("{package}/{interface}@{version}").as_str()).is_some()
}

#[cfg(test)]
mod tests {
    use super::{CompiledComponent, ReleaseError};
    use crate::{Limits, engine_config};

    /// An empty component.
    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    #[test]
    fn machine_code_is_held_once_and_loads_into_every_compatible_engine() -> Result<(), ReleaseError> {
        let engine = |fuel: bool| {
            let mut config = engine_config(Limits::default().stack_bytes);
            wasmtime::Engine::new(config.consume_fuel(fuel)).unwrap()
        };
        let (one, other, misfit) = (engine(true), engine(true), engine(false));
        let compiled = CompiledComponent::in_process(&one, EMPTY)?;
        let size = compiled.size();
        assert!(compiled.load(&misfit).is_err());
        let (first, again) = (compiled.load(&one).unwrap(), compiled.load(&one).unwrap());
        assert_eq!(first.image_range(), again.image_range(), "the same memory");
        assert_ne!(first.image_range(), compiled.load(&other).unwrap().image_range());
        assert!(compiled.load(&misfit).is_err());
        assert!(compiled.size() >= size && first.image_range() == compiled.load(&one).unwrap().image_range());
        Ok(())
    }
}
