//! The difference between what should be in the cloud and what is there.

use std::{collections::HashMap, hash::Hash};

/// See [`diff`].
#[derive(Debug, PartialEq, Eq)]
pub struct Diff<D, A> {
    /// Is to be created.
    pub missing: Vec<D>,
    /// Is there; compare the two, and change what differs.
    pub present: Vec<(D, A)>,
    /// Is to be deleted: nothing desired has its key, or another one with the same key is kept.
    pub surplus: Vec<A>,
}

/// Pairs the desired objects with the actual ones by their keys, in the order of the lists. Of
/// several actual objects with one key, the first is kept. A desired object whose key came before
/// is left out.
pub fn diff<D, A, K: Eq + Hash>(
    desired: impl IntoIterator<Item = D>,
    actual: impl IntoIterator<Item = A>,
    key_of_desired: impl Fn(&D) -> K,
    key_of_actual: impl Fn(&A) -> K,
) -> Diff<D, A> {
    let mut wanted: Vec<Option<D>> = Vec::new();
    let mut index: HashMap<K, usize> = HashMap::new();
    for one in desired {
        let next = wanted.len();
        if *index.entry(key_of_desired(&one)).or_insert(next) == next {
            wanted.push(Some(one));
        }
    }
    let (mut present, mut surplus) = (Vec::new(), Vec::new());
    for one in actual {
        let found = index.get(&key_of_actual(&one)).and_then(|at| wanted.get_mut(*at)).and_then(Option::take);
        match found {
            Some(desired) => present.push((desired, one)),
            None => surplus.push(one),
        }
    }
    Diff { missing: wanted.into_iter().flatten().collect(), present, surplus }
}

#[cfg(test)]
mod tests {
    use super::{Diff, diff};

    #[test]
    fn objects_are_paired_by_key_and_duplicates_are_surplus() {
        let desired = [("a", 1), ("b", 2), ("b", 3), ("c", 4)];
        let actual = [("c", 'x'), ("d", 'y'), ("a", 'z'), ("c", 'w')];
        let Diff { missing, present, surplus } = diff(desired, actual, |(key, _)| *key, |(key, _)| *key);
        assert_eq!(missing, [("b", 2)]);
        assert_eq!(present, [(("c", 4), ("c", 'x')), (("a", 1), ("a", 'z'))]);
        assert_eq!(surplus, [("d", 'y'), ("c", 'w')]);
    }
}
