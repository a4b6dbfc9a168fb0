//! The owner's promises, whatever comes in whatever order.

#[path = "owner/harness.rs"]
mod harness;

use harness::{Fate, Harness, Step};
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::{collection, option, prop_assert, proptest};

use grandstand_core::owner::Settings;

fn step() -> impl Strategy<Value = Step> {
    let small = 0..4u8;
    prop_oneof![
        12 => (0..2u8, 0..3u8, 0..4u8, 0..5u8)
            .prop_map(|(room, user, key, text)| Step::Publish { room, user, key, text: u8::from(text == 4) }),
        4 => (0..2u8, option::of(0..4u8), 0..3u8)
            .prop_map(|(event, revision, payload)| Step::Score { event, revision, payload }),
        2 => (0..2u8, 0..3u8, 0..3u8).prop_map(|(room, user, gift)| Step::Gift { room, user, gift }),
        2 => (0..2u8, 0..3u8, option::of(1..10u8)).prop_map(|(room, user, seconds)| Step::Ban { room, user, seconds }),
        2 => (0..2u8, 0..3u8).prop_map(|(room, user)| Step::Unban { room, user }),
        1 => (0..2u8).prop_map(|room| Step::RetractNewest { room }),
        1 => (0..2u8, 0..3u8).prop_map(|(room, user)| Step::RetractUser { room, user }),
        1 => (0..2u8, 0..3u8).prop_map(|(room, strict)| Step::Policy { room, strict }),
        1 => (0..2u8, small.clone(), option::of(1..8u8))
            .prop_map(|(room, seconds, lasts)| Step::Slow { room, seconds, lasts }),
        1 => (0..2u8, any::<bool>()).prop_map(|(room, closed)| Step::State { room, closed }),
        4 => (any::<u8>(), small).prop_map(|(nth, word)| Step::Verdict { nth, word }),
        8 => proptest::strategy::Just(Step::Seal),
        7 => proptest::strategy::Just(Step::Commit),
        3 => proptest::strategy::Just(Step::Fail),
        2 => (0..3_000u16).prop_map(|ms| Step::Pass { ms }),
        1 => (0..3_000u16).prop_map(|ms| Step::WallBack { ms }),
        1 => proptest::strategy::Just(Step::Checkpoint),
        2 => proptest::sample::select(vec![Fate::Landed, Fate::Lost, Fate::Late]).prop_map(|batch| Step::Crash { batch }),
    ]
}

fn settings(seq_max: u64) -> Settings {
    Settings { create_on_use: true, seq_max, ..Settings::default() }
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 512, failure_persistence: None, ..Default::default() })]

    /// One event a key, one answer a command, ids and priority numbers without holes, bans and strict rooms exact,
    /// recovery equal to what was lived; with epochs of 2^32 records and with epochs that end after a few.
    #[test]
    fn every_promise_holds_in_any_interleaving(steps in collection::vec(step(), 1..120), short in any::<bool>()) {
        let mut harness = Harness::new(settings(if short { 9 } else { 1 << 32 }));
        let outcome = harness.run(&steps);
        prop_assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
    }
}

/// The scripts must do what they are for.
#[test]
fn scripts_publish_and_recover() {
    let (published, recovered) = (0..64).fold((0, 0), |(published, recovered), n| {
        let mut harness = Harness::new(settings(1 << 32));
        harness.run(&script(n)).unwrap();
        (published + harness.n_published, recovered + harness.n_recovered)
    });
    assert!(published > 64 * 5, "only {published} acks");
    assert!(recovered > 64, "only {recovered} recoveries");
}

/// The `n`th script of a fixed sequence.
fn script(n: u64) -> Vec<Step> {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let mut seed = [7; 32];
    seed[..8].copy_from_slice(&n.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    collection::vec(step(), 100..120).new_tree(&mut runner).expect("a script can be made").current()
}

#[cfg(feature = "planted")]
#[test]
fn every_planted_fault_is_caught() {
    use grandstand_core::planted::plant;
    let caught = |fault: u32| {
        plant(fault);
        let found = (0..200).find(|&n| {
            let run = || Harness::new(settings(1 << 32)).run(&script(n)).is_err();
            std::panic::catch_unwind(run).unwrap_or(true)
        });
        plant(0);
        found
    };
    assert_eq!(caught(0), None);
    // A hole cannot come from an owner: the reader rule's own test plants 12.
    let missed: Vec<u32> = (1..=16).filter(|n| *n != 12 && caught(*n).is_none()).collect();
    assert_eq!(missed, [0; 0]);
}
