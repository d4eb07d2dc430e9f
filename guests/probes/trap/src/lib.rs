//! A probe that panics.

use skysail_guest_sdk::Result;

skysail_probe::probe!("trap", attack);

// Not inlined: the error must name the function.
#[inline(never)]
fn attack() -> Result<String> {
    #[expect(clippy::panic, reason = "this is the probe")]
    {
        panic!("a probe panics")
    }
}
