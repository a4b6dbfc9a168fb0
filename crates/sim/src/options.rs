//! What one run is made of: everything follows from the seed, and a shrunk run names what was taken away.

use std::collections::BTreeSet;
use std::fmt;

use grandstand_core::rng::Rng;

/// Everything that can go wrong in the simulated world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// The process dies between two events.
    Crash,
    /// It dies with a sealed batch that was never written.
    CrashBeforeWrite,
    /// It dies with its batch written and nobody told.
    CrashAfterWrite,
    /// The first records of a batch are written, the rest is not, and the process dies.
    Torn,
    /// The last records of a batch are written without the first, and the process dies.
    Hole,
    /// The storage fails a batch and says so.
    FailedCommit,
    NoSpace,
    /// A batch lands twice.
    DoubleWrite,
    SlowDisk,
    /// The process stands still, is replaced, and wakes up.
    Zombie,
    /// The wall clock of a process jumps, back or forth.
    ClockJump,
    LostReply,
    DoubleReply,
    LateReply,
    DoubleRequest,
    /// A batch reaches the gateway twice.
    DoubleLink,
    /// A gateway worker forgets a room and drops its viewers.
    WorkerCrash,
    /// A viewer's socket takes nothing for a while.
    Stall,
    /// A viewer's connection breaks; what was on the way is lost.
    Disconnect,
    /// A viewer stays away for long.
    LongAway,
    SlowVerdict,
    BlockVerdict,
    /// An owner dies alone: its gateway keeps its viewers and goes on with the next owner.
    GatewaySurvives,
    /// People like, and a round of their likes may reach the owner twice.
    DoubleLikes,
    /// A room turns wide or narrow.
    Flip,
    /// The classifier gives no word for a while.
    Outage,
    /// A judged room's policy changes.
    PolicyFlip,
    /// The classifier flags, and rooms hold what is flagged.
    FlagVerdict,
    /// What a room asks of comments, its pins, its state and its blackouts change, and its viewers report.
    Rules,
    /// A gateway's walks are late and its processors full, and an operator may order a lower cap.
    Overload,
    /// Providers correct themselves, faster than they are answered.
    Storm,
}

impl Fault {
    pub const ALL: [(Fault, &'static str); 31] = [
        (Fault::Crash, "crash"),
        (Fault::CrashBeforeWrite, "crash-before-write"),
        (Fault::CrashAfterWrite, "crash-after-write"),
        (Fault::Torn, "torn"),
        (Fault::Hole, "hole"),
        (Fault::FailedCommit, "failed-commit"),
        (Fault::NoSpace, "no-space"),
        (Fault::DoubleWrite, "double-write"),
        (Fault::SlowDisk, "slow-disk"),
        (Fault::Zombie, "zombie"),
        (Fault::ClockJump, "clock-jump"),
        (Fault::LostReply, "lost-reply"),
        (Fault::DoubleReply, "double-reply"),
        (Fault::LateReply, "late-reply"),
        (Fault::DoubleRequest, "double-request"),
        (Fault::DoubleLink, "double-link"),
        (Fault::WorkerCrash, "worker-crash"),
        (Fault::Stall, "stall"),
        (Fault::Disconnect, "disconnect"),
        (Fault::LongAway, "long-away"),
        (Fault::SlowVerdict, "slow-verdict"),
        (Fault::BlockVerdict, "block-verdict"),
        (Fault::GatewaySurvives, "gateway-survives"),
        (Fault::DoubleLikes, "double-likes"),
        (Fault::Flip, "flip"),
        (Fault::Outage, "outage"),
        (Fault::PolicyFlip, "policy-flip"),
        (Fault::FlagVerdict, "flag-verdict"),
        (Fault::Rules, "rules"),
        (Fault::Overload, "overload"),
        (Fault::Storm, "storm"),
    ];

    pub fn name(self) -> &'static str {
        Fault::ALL[self as usize].1
    }
    pub fn parse(name: &str) -> Option<Fault> {
        Fault::ALL.iter().find(|(_, n)| *n == name).map(|(fault, _)| *fault)
    }

    /// How often it comes when it is on, in a thousand chances. The chances are: a nemesis turn (each 250 ms), a batch, a
    /// reply, a request, a link, a verdict, a death, a turn of a
    /// room's operator, whichever the fault belongs to.
    fn rate(self) -> u64 {
        match self {
            Fault::Crash | Fault::Zombie => 25,
            Fault::CrashBeforeWrite | Fault::CrashAfterWrite | Fault::Torn | Fault::Hole => 8,
            Fault::FailedCommit | Fault::NoSpace | Fault::DoubleWrite => 40,
            Fault::SlowDisk => 60,
            Fault::ClockJump => 30,
            Fault::LostReply | Fault::DoubleReply | Fault::LateReply => 60,
            Fault::DoubleRequest | Fault::DoubleLink | Fault::DoubleLikes => 80,
            Fault::WorkerCrash => 20,
            Fault::Stall => 160,
            Fault::Disconnect => 120,
            Fault::LongAway => 60,
            Fault::SlowVerdict => 200,
            Fault::BlockVerdict => 100,
            Fault::GatewaySurvives => 600,
            Fault::Flip => 100,
            Fault::Outage => 60,
            Fault::PolicyFlip => 250,
            Fault::FlagVerdict => 300,
            Fault::Rules => 400,
            Fault::Overload => 60,
            // It is there or not.
            Fault::Storm => 1_000,
        }
    }
}

/// One run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    pub seed: u64,
    /// Of the safety phase.
    pub seconds: u64,
    /// Taken away while shrinking.
    pub off: BTreeSet<Fault>,
    /// Clients at most; 0 leaves it to the seed.
    pub clients_max: u64,
}

/// What the seed makes of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub n_rooms: u64,
    pub n_clients: u64,
    /// Milliseconds between two comments of one client on average.
    pub comment_every_ms: u64,
    /// How often each fault comes, in a thousand.
    pub rates: Vec<(Fault, u64)>,
    /// Seconds of the rooms' resume window.
    pub resume_window: u32,
    /// Bytes a plan of a walk weighs at most.
    pub plan_bytes: u64,
    /// Bytes a ring holds at most.
    pub ring_bytes: u64,
    pub merge_ms: Option<u32>,
    /// Rooms judge comments before they are shown.
    pub moderated: bool,
    /// Cursors from before a ring's floor wait for the ring to be filled.
    pub shares_reads: bool,
}

impl Options {
    pub fn new(seed: u64, seconds: u64) -> Options {
        Options { seed, seconds, off: BTreeSet::new(), clients_max: 0 }
    }

    pub fn plan(&self) -> Plan {
        let mut rng = Rng::new(self.seed ^ 0x6772_616e_6473_7464);
        let drawn = 4 + rng.below(13);
        let n_clients = if self.clients_max == 0 { drawn } else { drawn.min(self.clients_max) };
        // Each seed has its own half of the faults, so that rare combinations are not drowned by crashes.
        // What came to the model later is drawn apart: without it, a seed is the run it always was.
        let mut apart = Rng::new(self.seed ^ 0x7375_7276_6976_6573);
        let mut liking = Rng::new(self.seed ^ 0x6c69_6b65_7300_0000);
        let mut turning = Rng::new(self.seed ^ 0x666c_6970_7065_6472);
        let mut judging = Rng::new(self.seed ^ 0x6a75_6467_6500_0000);
        let mut ruling = Rng::new(self.seed ^ 0x7275_6c65_7300_0000);
        let mut loading = Rng::new(self.seed ^ 0x6c6f_6164_6500_0000);
        let mut correcting = Rng::new(self.seed ^ 0x7374_6f72_6d00_0000);
        let mut rates = Vec::new();
        for (fault, _) in Fault::ALL {
            let rng = match fault {
                Fault::GatewaySurvives => &mut apart,
                Fault::DoubleLikes => &mut liking,
                Fault::Flip => &mut turning,
                Fault::Outage | Fault::PolicyFlip | Fault::FlagVerdict => &mut judging,
                Fault::Rules => &mut ruling,
                Fault::Overload => &mut loading,
                Fault::Storm => &mut correcting,
                _ => &mut rng,
            };
            let on = rng.chance(1, 2) || matches!(fault, Fault::Disconnect);
            let scale = 1 + rng.below(3);
            if on && !self.off.contains(&fault) {
                rates.push((fault, fault.rate() * scale / 2));
            }
        }
        let shares_reads = rates.iter().any(|(fault, _)| *fault == Fault::GatewaySurvives);
        Plan {
            n_rooms: 1 + rng.below(2),
            n_clients,
            comment_every_ms: [60, 200, 800][rng.below(3) as usize],
            rates,
            resume_window: 10 + rng.below(20) as u32,
            plan_bytes: [300, 2_000, 64 << 10][rng.below(3) as usize],
            ring_bytes: [6_000, 40_000, 4 << 20][rng.below(3) as usize],
            merge_ms: [None, Some(50), Some(200)][rng.below(3) as usize],
            moderated: rng.chance(1, 3),
            shares_reads: shares_reads && apart.chance(1, 2),
        }
    }
}

impl Plan {
    pub fn has(&self, fault: Fault) -> bool {
        self.rates.iter().any(|(f, _)| *f == fault)
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--seed {} --seconds {}", self.seed, self.seconds)?;
        if self.clients_max > 0 {
            write!(f, " --clients {}", self.clients_max)?;
        }
        self.off.iter().try_for_each(|fault| write!(f, " --without {}", fault.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::Fault;

    #[test]
    fn every_fault_has_its_own_place_and_name() {
        for (i, (fault, name)) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, i);
            assert_eq!(Fault::parse(name), Some(fault));
        }
    }
}
