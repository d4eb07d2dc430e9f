//! Whose fault it is that a component is refused before it serves: because it cannot be loaded, or
//! because of its answers. `skysail_slot::fault` has the rule, and decides it for calls.

use std::io;

use skysail_provider::{Code, Limit};
use skysail_slot::{
    Fault, RefusalReason,
    fault::{CallObservation, of_call},
};
use wasmtime::PoolConcurrencyLimitError;

use crate::{ReleaseError, jail::CompileError};

/// The fault of a release that failed where its predecessor answered the same question before and
/// after, while no request of the release failed. A lasting error is the release's fault; so is a
/// request that was denied, because the predecessor has the same rules and credentials.
pub(crate) const fn of_compared(code: Code, limit: Option<Limit>, seen: CallObservation) -> Option<Fault> {
    match code {
        Code::NotFound | Code::ImplementedElsewhere | Code::Unsupported | Code::Invalid | Code::Denied => {
            Some(Fault::Release)
        }
        _ => of_call(code, limit, CallObservation { denied: false, ..seen }),
    }
}

/// The fault where the release answered, and the answer is the reason of the refusal. A
/// cloud-config that the release does not accept, or an origin that no egress rule allows, is for
/// the operator to correct; the other answers are wrong under every setting.
pub(crate) const fn of_answer(reason: RefusalReason) -> Fault {
    match reason {
        RefusalReason::ConfigRefused | RefusalReason::EgressNotAllowed => Fault::Operator,
        _ => Fault::Release,
    }
}

/// The fault where the release did not answer: the fault of the failed call.
pub(crate) fn of_silence(call: Option<Fault>) -> Fault {
    call.unwrap_or(Fault::Machine)
}

/// The fault where the answers took longer than the judgement of settings may. This bound is
/// shorter than the deadline of a call, so the release has not failed.
pub(crate) const OF_A_SLOW_ANSWER: Fault = Fault::Machine;

/// The fault where a component could not be compiled.
pub(crate) const fn of_compilation(error: &CompileError) -> Fault {
    if error.is_of_the_component() { Fault::Release } else { Fault::Machine }
}

/// The fault where a component was compiled and could not be linked.
pub(crate) const fn of_linking(error: &ReleaseError) -> Fault {
    match error {
        // This process compiled the component, so the machine code is valid: loading it fails only
        // where the operating system refuses memory (mmap, memfd).
        ReleaseError::Load(_) => Fault::Machine,
        ReleaseError::Precompiled
        | ReleaseError::Compile(_)
        | ReleaseError::Memories { .. }
        | ReleaseError::Tables { .. }
        | ReleaseError::MemoryBytes { .. }
        | ReleaseError::TableElements { .. }
        | ReleaseError::ImportsModules
        | ReleaseError::Link(_)
        | ReleaseError::NoIdentity
        | ReleaseError::Export { .. } => Fault::Release,
    }
}

/// The fault where linking panicked, which the component may have caused.
pub(crate) const OF_A_PANIC: Fault = Fault::Release;

/// Whether a guest did not run because of the operating system or the pool: mmap, for example, had
/// no memory. No function of a guest fails like this.
pub(crate) fn is_of_the_machine(error: &wasmtime::Error) -> bool {
    error.is::<PoolConcurrencyLimitError>()
        || error.chain().any(|cause| cause.is::<io::Error>() || cause.is::<rustix::io::Errno>())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{Fault, is_of_the_machine, of_linking};
    use crate::ReleaseError;

    #[test]
    fn a_component_that_the_machine_cannot_map_is_the_machines_fault() {
        let no_memory = wasmtime::Error::new(io::Error::from(io::ErrorKind::OutOfMemory));
        assert!(is_of_the_machine(&no_memory.context("cannot map the memory")));
        assert!(!is_of_the_machine(&wasmtime::Error::new(wasmtime::Trap::MemoryOutOfBounds)));
        let no_memory = wasmtime::Error::new(rustix::io::Errno::NOMEM);
        assert_eq!(of_linking(&ReleaseError::Load(no_memory)), Fault::Machine);
        assert_eq!(of_linking(&ReleaseError::NoIdentity), Fault::Release);
    }
}
