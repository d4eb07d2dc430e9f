//! Lists of taints (pure): upstream's helpers. Taints are equal if key and effect are equal,
//! whatever their values.

use k8s_openapi::api::core::v1::Taint;

/// Whether the list has this taint.
pub(crate) fn exists(taints: &[Taint], taint: &Taint) -> bool {
    taints.iter().any(|other| is_same(other, taint))
}

/// The list without this taint; none if the list does not have it, so that nothing is written.
pub(crate) fn without(taints: &[Taint], taint: &Taint) -> Option<Vec<Taint>> {
    exists(taints, taint).then(|| taints.iter().filter(|other| !is_same(other, taint)).cloned().collect())
}

fn is_same(one: &Taint, other: &Taint) -> bool {
    one.key == other.key && one.effect == other.effect
}

#[cfg(test)]
mod tests;
