//! The hasher of the rules' maps: fast, seeded by whoever runs them, the same sequence for the same seed.
//!
//! No order that anyone can see may come from a map with it. The seed is the process's own chance in a server, so that
//! nobody outside can choose names that collide; it never reaches a log.

use std::hash::{BuildHasher, Hasher};

/// Builds hashers that all start from one seed.
#[derive(Clone, Copy, Debug)]
pub struct Seeded(pub u64);

/// Folds eight bytes at a time by a 64 × 64 → 128 bit product, after wyhash (Wang Yi, public domain).
#[derive(Clone, Copy, Debug)]
pub struct Fold(u64);

impl BuildHasher for Seeded {
    type Hasher = Fold;
    fn build_hasher(&self) -> Fold {
        Fold(self.0)
    }
}

fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a ^ 0xa076_1d64_78bd_642f) * u128::from(b ^ 0xe703_7ed1_a0b4_28db);
    (wide >> 64) as u64 ^ wide as u64
}

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.0 = fold(u64::from_le_bytes(word.try_into().expect("chunks are eight bytes")), self.0);
        }
        let mut last = [0; 8];
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        self.0 = fold(u64::from_le_bytes(last), self.0.wrapping_add(bytes.len() as u64));
    }
    fn write_u8(&mut self, value: u8) {
        self.0 = fold(u64::from(value), self.0);
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = fold(value, self.0);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Seeded;
    use std::collections::BTreeSet;
    use std::hash::BuildHasher;

    #[test]
    fn near_names_do_not_meet_and_seeds_differ() {
        let hashes: BTreeSet<u64> = (0..10_000).map(|n| Seeded(7).hash_one(format!("user-{n}"))).collect();
        assert_eq!(hashes.len(), 10_000);
        assert_ne!(Seeded(1).hash_one("a"), Seeded(2).hash_one("a"));
        assert_eq!(Seeded(1).hash_one("a"), Seeded(1).hash_one("a"));
    }
}
