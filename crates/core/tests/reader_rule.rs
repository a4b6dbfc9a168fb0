//! The reader rule against a definition that is only to be read, not to be fast.

use proptest::collection::vec;
use proptest::{prop_assert_eq, proptest};

use grandstand_core::ids::{Epoch, EventId, Seq};
use grandstand_core::reader::{Reader, Reading};

/// Valid: of the highest epoch begun so far, the next of its epoch, no record of the epoch having been ahead of its turn.
/// Seq 0 is the EpochStart, which begins an epoch higher than all before.
fn defined(log: &[(u32, u64)]) -> Vec<bool> {
    let mut valid: Vec<bool> = Vec::new();
    for (i, &(epoch, seq)) in log.iter().enumerate() {
        let before = || log[..i].iter().zip(&valid).filter(|(_, ok)| **ok).map(|(r, _)| *r);
        let newest = before().map(|(e, _)| e).max();
        let n_before = |j: usize| log[..j].iter().zip(&valid).filter(|(r, ok)| **ok && r.0 == epoch).count() as u64;
        let holed = (0..i).any(|j| {
            log[j].0 == epoch && n_before(j) > 0 && log[j].1 > n_before(j) && {
                let newest_then = log[..j].iter().zip(&valid).filter(|(_, ok)| **ok).map(|(r, _)| r.0).max();
                newest_then == Some(epoch)
            }
        });
        let ok = if seq == 0 {
            newest.is_none_or(|newest| epoch > newest)
        } else {
            newest == Some(epoch) && seq == n_before(i) && !holed
        };
        valid.push(ok);
    }
    valid
}

fn read(reader: &mut Reader, (epoch, seq): (u32, u64)) -> Reading {
    reader.judge(Epoch::new(epoch).unwrap(), Seq::new(seq).unwrap(), seq == 0)
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 4_096, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_mix_of_zombies_repeats_and_holes_is_read_as_defined(log in vec((1..4u32, 0..5u64), 0..40)) {
        let mut reader = Reader::new();
        let readings: Vec<Reading> = log.iter().map(|r| read(&mut reader, *r)).collect();
        let valid: Vec<bool> = readings.iter().map(|r| *r == Reading::Valid).collect();
        prop_assert_eq!(&valid, &defined(&log));

        // What is valid: epochs rise, each from 0 without holes, nothing twice; and the reader knows exactly that.
        let kept: Vec<(u32, u64)> = log.iter().zip(&valid).filter(|(_, ok)| **ok).map(|(r, _)| *r).collect();
        prop_assert_eq!(kept.is_sorted_by(|a, b| a < b), true);
        for epoch in 1..4 {
            let seqs: Vec<u64> = kept.iter().filter(|r| r.0 == epoch).map(|r| r.1).collect();
            prop_assert_eq!(&seqs, &(0..seqs.len() as u64).collect::<Vec<_>>());
            for seq in 0..5 {
                let id = EventId::at(Epoch::new(epoch).unwrap(), Seq::new(seq).unwrap());
                prop_assert_eq!(reader.holds(id), kept.contains(&(epoch, seq)));
            }
        }
    }

    #[test]
    fn writers_that_only_repeat_themselves_lose_nothing_before_a_take_over(
        lengths in vec(1..6u64, 1..4), repeats in vec((0..20usize, 0..20usize), 0..10)
    ) {
        let mut log: Vec<(u32, u64)> =
            (1..).zip(&lengths).flat_map(|(epoch, n)| (0..*n).map(move |seq| (epoch, seq))).collect();
        let honest = log.clone();
        for (from, to) in repeats {
            let (from, at) = (from % log.len(), to % (log.len() + 1));
            if at > from {
                log.insert(at, log[from]);
            }
        }
        let mut reader = Reader::new();
        let kept: Vec<(u32, u64)> = log.into_iter().filter(|r| read(&mut reader, *r) == Reading::Valid).collect();
        prop_assert_eq!(kept, honest);
    }

    #[test]
    fn a_reader_goes_on_after_a_checkpoint_as_if_it_had_read_all(log in vec((1..4u32, 0..5u64), 0..30), cut in 0..30usize) {
        let cut = cut.min(log.len());
        let mut whole = Reader::new();
        let readings: Vec<Reading> = log.iter().map(|r| read(&mut whole, *r)).collect();
        // A checkpoint is never taken behind a hole: its owner has stopped there.
        if !readings[..cut].contains(&Reading::Hole) {
            let mut first = Reader::new();
            log[..cut].iter().for_each(|r| { read(&mut first, *r); });
            let mut second = Reader::after(first.spans().to_vec());
            let rest: Vec<Reading> = log[cut..].iter().map(|r| read(&mut second, *r)).collect();
            prop_assert_eq!(&rest, &readings[cut..]);
        }
    }
}

#[cfg(feature = "planted")]
#[test]
fn the_readers_planted_faults_are_caught() {
    use grandstand_core::planted::plant;
    for (fault, log) in [(8, [(2, 0), (1, 0), (2, 1)]), (12, [(1, 0), (1, 2), (1, 3)])] {
        let differs = || {
            let mut reader = Reader::new();
            let got: Vec<bool> = log.iter().map(|r| read(&mut reader, *r) == Reading::Valid).collect();
            got != defined(&log)
        };
        assert!(!differs());
        plant(fault);
        assert!(differs(), "fault {fault}");
        plant(0);
    }
}
