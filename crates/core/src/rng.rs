//! The one random source of the rules: splitmix64, seeded by whoever runs them, the same sequence everywhere.

/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    #[expect(
        clippy::should_implement_trait,
        reason = "a random source has no end; an iterator's Option would be noise"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0 .. n`. Calling with 0 is a bug and panics.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "a draw needs at least one outcome");
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// True `n` times out of `of`.
    pub fn chance(&mut self, n: u64, of: u64) -> bool {
        self.below(of) < n
    }
}
