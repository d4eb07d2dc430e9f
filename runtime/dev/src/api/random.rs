//! Deterministic uids and generated name suffixes, which an API server draws at random.

/// A small generator (`SplitMix64`), not for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

/// The characters of generated names: no vowels, so that no words result.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

impl Random {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A version 4 UUID in its usual spelling.
    pub(crate) fn uid(&mut self) -> String {
        let (a, b) = (self.next(), self.next());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            a >> 32,
            (a >> 16) & 0xffff,
            a & 0xfff,
            (b >> 48) & 0x3fff | 0x8000,
            b & 0xffff_ffff_ffff
        )
    }

    /// `base` cut to 58 characters plus five letters.
    pub(crate) fn name(&mut self, base: &str) -> String {
        let mut name: String = base.chars().take(58).collect();
        for _ in 0..5 {
            let index = usize::try_from(self.next() % 27).unwrap_or_default();
            name.push(char::from(LETTERS.get(index).copied().unwrap_or(b'x')));
        }
        name
    }
}
