//! What an audience needs, as arithmetic: numbers in, numbers out.
//!
//! A chain of multiplications, each named: viewers and what each is given make deliveries, those make CPU time and bytes, and the
//! larger of the two makes machines. It reads no clock, no file and no machine. The awkward case is the network that fills
//! before the cores do: every count of machines is the larger of both.
//!
//! What a viewer, a comment or a connection costs is a [`Costs`]: the measured ones by default. The tests put the round
//! figures of a textbook design in their place and find that design's results, with three of its errors put right.

use grandstand_core::dedupe;
use grandstand_core::routing::PARTITIONS;
use grandstand_core::sampler::switch::{self, Limits, Pace};
use grandstand_core::sampler::{pick, window};
use grandstand_core::viewer::merge;
use serde::Serialize;

/// Zones of a region: any one of them may be lost.
pub const ZONES: u64 = 3;

/// A cost, and where it was measured or is bounded.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    pub name: &'static str,
    pub value: f64,
    pub unit: &'static str,
    pub document: &'static str,
    /// Its words there.
    pub words: &'static str,
}

/// What things cost on the machine they were measured on.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// CPU of a frame to one viewer, and of each comment in it.
    pub frame_us: f64,
    pub comment_us: f64,
    /// What a comment's event has beside its body, and a packet beside its payload.
    pub comment_bytes: f64,
    pub packet_bytes: f64,
    pub packet_payload_bytes: f64,
    /// Memory of the process and of the kernel for a viewer; `tls` comes on top.
    pub viewer_bytes: f64,
    pub tls_bytes: f64,
    pub kernel_bytes: f64,
    /// Rings of a gateway process.
    pub ring_bytes: f64,
    /// CPU of a new connection, plain and by a full TLS handshake.
    pub connect_us: f64,
    pub handshake_us: f64,
    /// Acked publishes a second and log, sustained.
    pub publishes: f64,
    /// Comments an owner decides a second and core.
    pub decisions: f64,
    /// A comment in the log, and its key in the owner's memory.
    pub record_bytes: f64,
    pub key_bytes: f64,
    /// What of a core, a network card and a log may be used up.
    pub core_share: f64,
    pub network_share: f64,
    pub log_share: f64,
}

pub const MEASURED: Costs = Costs {
    frame_us: 6.0,
    comment_us: 0.1,
    comment_bytes: 130.0,
    packet_bytes: 66.0,
    packet_payload_bytes: 1_448.0,
    viewer_bytes: 1_000.0,
    tls_bytes: 4_000.0,
    kernel_bytes: 5_000.0,
    ring_bytes: 256e6,
    connect_us: 27.0,
    handshake_us: 330.0,
    publishes: 30_000.0,
    decisions: 425_000.0,
    record_bytes: 255.0,
    key_bytes: 171.0,
    core_share: 0.7,
    network_share: 0.8,
    log_share: 0.7,
};

impl Costs {
    /// The costs by name, each with its document and its words there.
    pub fn named(&self) -> Vec<Measured> {
        let one = |name, value, unit, document, words| Measured { name, value, unit, document, words };
        let sizing = |name, value, unit, words| one(name, value, unit, "docs/operate/sizing.md", words);
        let benchmarks = |name, value, unit, words| one(name, value, unit, "docs/benchmarks.md", words);
        let frame = "`f × (6 + 0.1 × k)`";
        let memory = "1 KB, with TLS 5 KB";
        let connection = "27 µs, with a full TLS handshake 330 µs";
        vec![
            sizing("frame to a viewer", self.frame_us, "core-µs", frame),
            sizing("each comment in it", self.comment_us, "core-µs", frame),
            sizing("comment beside its body", self.comment_bytes, "bytes", "a 100-byte body is 230 bytes as JSON"),
            sizing(
                "packet beside its payload",
                self.packet_bytes,
                "bytes",
                "a packet of 1 448 bytes has 66 of headers",
            ),
            sizing("viewer in the process", self.viewer_bytes, "bytes", memory),
            sizing("its TLS session", self.tls_bytes, "bytes", memory),
            sizing("its socket in the kernel", self.kernel_bytes, "bytes", "| memory of the kernel | 5 KB |"),
            one(
                "rings of a process, at most",
                self.ring_bytes,
                "bytes",
                "docs/decisions/0005-numbers.md",
                "256 MB a process",
            ),
            sizing("new connection", self.connect_us, "core-µs", connection),
            sizing("the same, full TLS handshake", self.handshake_us, "core-µs", connection),
            sizing("acked publishes of a log", self.publishes, "a second", "30 000 acked publishes a second sustained"),
            benchmarks("decisions of an owner", self.decisions, "a second and core", "| 425 000 |"),
            benchmarks("comment in the log", self.record_bytes, "bytes", "a log of 1 GiB (4.2 million records"),
            benchmarks("its key in the owner", self.key_bytes, "bytes", "| 171 bytes |"),
        ]
    }
}

/// The evening, and the machines it is to be planned with.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Evening {
    /// Viewers of the one big room, over all regions, at the peak.
    pub viewers: u64,
    /// Comments a second said in it.
    pub rate: f64,
    pub regions: u64,
    /// Comments a second a viewer is shown at most when the room is sampled.
    pub cap: f64,
    /// A comment's text.
    pub body_bytes: f64,
    pub tls: bool,
    /// Of a gateway machine.
    pub cores: u64,
    pub gbit: f64,
    /// The room's rate in a great moment, as a multiple.
    pub spike: f64,
    /// New viewers a minute when the crowd comes, over all regions.
    pub joins_per_minute: f64,
    /// How long it takes from seeing a crowd to one more machine that serves.
    pub reaction_seconds: f64,
}

/// Of the room, whoever serves it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Room {
    pub sampled: bool,
    /// Comments a second each viewer is shown.
    pub shown: f64,
    pub keep_fraction: f64,
    pub frames_per_viewer: f64,
    pub comments_per_frame: f64,
    pub bytes_per_viewer: f64,
    pub deliveries: f64,
    /// What it would be if every viewer were sent everything.
    pub deliveries_unsampled: f64,
    pub gbit: f64,
    pub gbit_unsampled: f64,
}

/// One region's gateways.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Region {
    pub viewers: f64,
    pub deliveries: f64,
    pub cores: f64,
    pub gbit: f64,
    pub memory_gb: f64,
    /// That the viewers need, and with a zone to spare.
    pub machines_needed: u64,
    pub machines: u64,
    /// With every zone up.
    pub viewers_per_machine: f64,
    /// Network cards a machine's share of the bytes fills when a zone is lost; 1 is full.
    pub network_use: f64,
    pub cpu_use: f64,
    pub memory_per_machine_gb: f64,
    /// A score's last viewer of a machine after its first.
    pub score_spread_ms: f64,
    pub zone_lost: ZoneLost,
}

/// A third of a region's machines is gone and its viewers come to the others.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ZoneLost {
    pub come_back: f64,
    /// New streams a second to allow on each machine that is left.
    pub admission_rate: f64,
    pub back_within_seconds: f64,
}

/// The owners and the log.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Shards {
    /// Logs that take the room's comments, and with a zone to spare: in the room's home region.
    pub needed: u64,
    pub home: u64,
    /// As many in the region that takes over.
    pub standby: u64,
    pub owner_cores: f64,
    /// Keys of the last ten minutes, over all shards.
    pub memory_gb: f64,
    pub partitions: u64,
    /// Raw comments a second in each partition.
    pub raw_per_partition: f64,
    /// The sampler's winners, or all comments of a room that is not sampled: they are in one partition.
    pub sequenced: f64,
    pub log_mb_per_second: f64,
    pub log_gb_per_hour: f64,
    /// To each gateway machine.
    pub link_batches_per_second: f64,
    pub link_mbit_per_machine: f64,
    /// Classifier calls under way at 80 ms each, of what is sequenced and if everything were judged.
    pub verdicts_under_way: f64,
    pub verdicts_under_way_unsampled: f64,
    /// What the logs take of a great moment; the rest is told `overloaded` and tries again.
    pub spike: f64,
    pub spike_taken: f64,
}

/// What stands ready before an announced start.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Warm {
    pub machines: u64,
    pub shards: u64,
    /// Viewers over all regions that the machines carry, each region with a zone lost, and with all up.
    pub viewers_zone_lost: f64,
    pub viewers_all_up: f64,
    /// Viewers that come before a machine that is asked for at the peak would serve.
    pub come_in_reaction: f64,
    /// Whether those fit in with all zones up.
    pub holds: bool,
    pub join_cores: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    pub evening: Evening,
    pub room: Room,
    pub region: Region,
    pub machines: u64,
    pub gbit: f64,
    pub shards: Shards,
    pub warm: Warm,
    pub costs: Vec<Measured>,
}

/// A wide room's window, seconds, and the most winners it has, by lot and by right.
pub const WINDOW: f64 = pick::WINDOW_MS as f64 / 1e3;
pub const WINNERS: f64 = (window::WINNERS + window::BY_RIGHT) as f64;
/// What a classifier is given for one comment, seconds.
const VERDICT: f64 = 0.08;
/// A lost zone's viewers should be back after so long.
const BACK_SECONDS: f64 = 20.0;

impl Plan {
    pub fn of(evening: Evening, costs: &Costs) -> Plan {
        let room = room(&evening, costs);
        let region = region(&evening, &room, costs);
        let shards = shards(&evening, &room, costs);
        let regions = evening.regions as f64;
        let carries = |machines: u64| regions * carried(machines, &room, &evening, costs);
        let come = evening.joins_per_minute / 60.0 * evening.reaction_seconds;
        let all_up = carries(region.machines);
        let warm = Warm {
            machines: region.machines * evening.regions,
            shards: shards.home + shards.standby,
            viewers_zone_lost: carries(region.machines - region.machines / ZONES),
            viewers_all_up: all_up,
            come_in_reaction: come,
            holds: evening.viewers as f64 + come <= all_up,
            join_cores: evening.joins_per_minute / 60.0 * connect_us(&evening, costs) / 1e6,
        };
        Plan { evening, room, region, machines: warm.machines, gbit: room.gbit, shards, warm, costs: costs.named() }
    }
}

/// Comments a second each viewer would be sent in all, if everything said were sent to everyone.
pub fn deliveries(viewers: f64, shown: f64) -> f64 {
    viewers * shown
}

pub fn gbit(bytes_per_second: f64) -> f64 {
    bytes_per_second * 8.0 / 1e9
}

/// The smallest number of which two thirds, when one of three zones is lost, are still `needed`.
pub fn with_a_zone_to_spare(needed: u64) -> u64 {
    let mut n = needed.max(1).next_multiple_of(ZONES);
    while n - n / ZONES < needed {
        n += ZONES;
    }
    n
}

/// How many of `each` hold `all`.
pub fn parts(all: f64, each: f64) -> u64 {
    (all / each).ceil().max(1.0) as u64
}

/// Batches that one room sends to one gateway: one a window, however many comments are said.
pub fn batches(rate: f64, window: f64) -> f64 {
    rate.min(1.0 / window)
}

/// Calls under way at one moment (Little's law).
pub fn under_way(per_second: f64, seconds: f64) -> f64 {
    per_second * seconds
}

fn connect_us(evening: &Evening, costs: &Costs) -> f64 {
    if evening.tls { costs.handshake_us } else { costs.connect_us }
}

fn room(evening: &Evening, costs: &Costs) -> Room {
    let (viewers, rate) = (evening.viewers as f64, evening.rate);
    let limits = Limits::default();
    let merge = merge::window_at(evening.viewers).as_secs_f64();
    let whole = if merge > 0.0 { batches(rate, merge) } else { rate };
    let pace = Pace { comments: rate.ceil() as u32, frames: whole.ceil() as u32 };
    let crowded = evening.viewers >= limits.viewers || switch::cost(pace, evening.viewers) > limits.sends;
    let sampled = rate > f64::from(limits.rate) && crowded && rate > evening.cap;
    let shown = if sampled { evening.cap } else { rate };
    // A sampled room's window is its own.
    let window = if sampled { WINDOW } else { merge };
    let frames = if window > 0.0 { batches(shown, window) } else { shown };
    let comments = if frames > 0.0 { shown / frames } else { 0.0 };
    let event = evening.body_bytes + costs.comment_bytes;
    let packets = (comments * event / costs.packet_payload_bytes).ceil();
    let bytes = shown * event + frames * costs.packet_bytes * packets;
    let bytes_unsampled = rate * event;
    Room {
        sampled,
        shown,
        keep_fraction: if rate > 0.0 { (shown / rate).min(1.0) } else { 1.0 },
        frames_per_viewer: frames,
        comments_per_frame: comments,
        bytes_per_viewer: bytes,
        deliveries: deliveries(viewers, shown),
        deliveries_unsampled: deliveries(viewers, rate),
        gbit: gbit(viewers * bytes),
        gbit_unsampled: gbit(viewers * bytes_unsampled),
    }
}

/// CPU microseconds a second of one viewer.
fn viewer_us(room: &Room, costs: &Costs) -> f64 {
    room.frames_per_viewer * (costs.frame_us + costs.comment_us * room.comments_per_frame)
}

/// Viewers that so many machines carry: by their cores or by their network, whichever is less.
fn carried(machines: u64, room: &Room, evening: &Evening, costs: &Costs) -> f64 {
    let by_cores = machines as f64 * evening.cores as f64 * costs.core_share * 1e6 / viewer_us(room, costs);
    let by_network = machines as f64 * evening.gbit * 1e9 / 8.0 * costs.network_share / room.bytes_per_viewer;
    by_cores.min(by_network)
}

fn region(evening: &Evening, room: &Room, costs: &Costs) -> Region {
    let viewers = evening.viewers as f64 / evening.regions as f64;
    let cores = viewers * viewer_us(room, costs) / 1e6 / costs.core_share;
    let gbit = gbit(viewers * room.bytes_per_viewer);
    let by_cores = parts(cores, evening.cores as f64);
    let by_network = parts(gbit, evening.gbit * costs.network_share);
    let machines_needed = by_cores.max(by_network);
    let machines = with_a_zone_to_spare(machines_needed);
    let left = machines - machines / ZONES;
    let memory = costs.viewer_bytes + costs.kernel_bytes + if evening.tls { costs.tls_bytes } else { 0.0 };
    let come_back = viewers / ZONES as f64;
    let spare_us = (1.0 - costs.core_share) * evening.cores as f64 * left as f64 * 1e6;
    let back = (come_back * connect_us(evening, costs) / spare_us).max(BACK_SECONDS);
    Region {
        viewers,
        deliveries: deliveries(viewers, room.shown),
        cores,
        gbit,
        memory_gb: viewers * memory / 1e9,
        machines_needed,
        machines,
        viewers_per_machine: viewers / machines as f64,
        network_use: gbit / left as f64 / evening.gbit,
        cpu_use: cores * costs.core_share / (left * evening.cores) as f64,
        memory_per_machine_gb: (viewers / left as f64 * memory + costs.ring_bytes) / 1e9,
        score_spread_ms: viewers / (left * evening.cores) as f64 * costs.frame_us / 1e3,
        zone_lost: ZoneLost {
            come_back,
            admission_rate: (come_back / left as f64 / back).ceil(),
            back_within_seconds: back,
        },
    }
}

fn shards(evening: &Evening, room: &Room, costs: &Costs) -> Shards {
    let rate = evening.rate;
    let log = costs.publishes * costs.log_share;
    let needed = parts(rate, log);
    let home = with_a_zone_to_spare(needed);
    let sequenced = if room.sampled { rate.min(WINNERS / WINDOW) } else { rate };
    let window = if room.sampled { WINDOW } else { 0.0 };
    let batches = if window > 0.0 { batches(sequenced, window) } else { sequenced };
    let event = evening.body_bytes + costs.comment_bytes;
    Shards {
        needed,
        home,
        standby: if evening.regions > 1 { home } else { 0 },
        owner_cores: rate / costs.decisions,
        memory_gb: rate * dedupe::WINDOW.as_secs_f64() * costs.key_bytes / 1e9,
        partitions: u64::from(PARTITIONS),
        raw_per_partition: rate / f64::from(PARTITIONS),
        sequenced,
        log_mb_per_second: (rate + if room.sampled { sequenced } else { 0.0 }) * costs.record_bytes / 1e6,
        log_gb_per_hour: (rate + if room.sampled { sequenced } else { 0.0 }) * costs.record_bytes * 3_600.0 / 1e9,
        link_batches_per_second: batches,
        link_mbit_per_machine: sequenced * event * 8.0 / 1e6,
        verdicts_under_way: under_way(sequenced, VERDICT),
        verdicts_under_way_unsampled: under_way(rate, VERDICT),
        spike: rate * evening.spike,
        spike_taken: (rate * evening.spike).min(home as f64 * costs.publishes),
    }
}

#[cfg(test)]
mod tests {
    //! The eleven derivations of the design this project began from, by its own round figures, and three of them put right.

    use grandstand_core::routing::PARTITIONS;
    use grandstand_core::sampler::keep;

    use super::*;

    /// Its figures: 250 bytes a comment and nothing beside, 100 000 viewers a machine, whatever they are sent.
    const TEXTBOOK: Costs = Costs { comment_bytes: 0.0, packet_bytes: 0.0, ..MEASURED };
    const VIEWERS: f64 = 5e6;
    const BYTES: f64 = 250.0;

    fn stadium() -> Evening {
        Evening {
            viewers: 5_000_000,
            rate: 250_000.0,
            regions: 4,
            cap: 5.0,
            body_bytes: BYTES,
            tls: true,
            cores: 16,
            gbit: 25.0,
            spike: 10.0,
            joins_per_minute: 1_100_000.0,
            reaction_seconds: 90.0,
        }
    }

    fn near(got: f64, want: f64) {
        assert!((got - want).abs() <= want.abs() * 1e-9, "{got} is not {want}");
    }

    #[test]
    fn derivation_1_one_comment_in_twenty_seconds_of_five_million_is_250_000_a_second() {
        near(VIEWERS * 0.05, 250_000.0);
        near(crate::plan::stress_rate(5_000_000), 250_000.0);
    }

    #[test]
    fn derivation_2_everything_to_everyone_is_more_than_any_phone_takes() {
        let room = Plan::of(stadium(), &TEXTBOOK).room;
        near(room.deliveries_unsampled, 1.25e12);
        // A phone of 50 KB/s takes 200 comments a second, and 250 000 are said.
        near(50_000.0 / BYTES, 200.0);
        assert!(stadium().rate > 200.0);
    }

    #[test]
    fn derivation_3_sampled_it_is_25_million_a_second_and_1250_bytes_a_viewer() {
        let room = Plan::of(stadium(), &TEXTBOOK).room;
        assert!(room.sampled);
        near(room.deliveries, 25e6);
        near(room.bytes_per_viewer, 1_250.0);
    }

    #[test]
    fn derivation_4_the_keep_fraction_is_two_in_a_hundred_thousand() {
        near(Plan::of(stadium(), &TEXTBOOK).room.keep_fraction, 2e-5);
        assert_eq!(keep::millionths(5, 250_000), 20, "as viewers are told it");
    }

    #[test]
    fn derivation_5_the_event_is_50_gbit_12_5_a_region_and_sampling_saves_50_000_times() {
        let plan = Plan::of(stadium(), &TEXTBOOK);
        near(plan.room.gbit, 50.0);
        near(plan.region.gbit, 12.5);
        // 2.5 Pbit/s.
        near(plan.room.gbit_unsampled, 2.5e6);
        near(plan.room.gbit_unsampled / plan.room.gbit, 50_000.0);
    }

    /// The original compared a region's 12.5 Gbit/s with one card. A region has many machines, so it is the machine's share
    /// that is compared with a machine's card: with a zone lost, too.
    #[test]
    fn derivation_5_put_right_a_card_is_compared_with_its_own_machines_share() {
        let region = Plan::of(stadium(), &TEXTBOOK).region;
        let left = region.machines - region.machines / ZONES;
        near(region.network_use, 12.5 / left as f64 / 25.0);
        assert!(region.network_use <= TEXTBOOK.network_share);
        // On machines with one gigabit it is the network that decides how many they are.
        let thin = Plan::of(Evening { gbit: 1.0, ..stadium() }, &TEXTBOOK).region;
        assert_eq!(thin.machines_needed, 16, "12.5 of 0.8 each");
        assert!(thin.network_use <= TEXTBOOK.network_share);
    }

    #[test]
    fn derivation_6_the_long_tail_says_as_much_again_and_no_partition_is_full() {
        let long_tail = 50_000.0 * 100.0 * 0.05;
        near(long_tail, 250_000.0);
        assert_eq!((long_tail / f64::from(PARTITIONS)).round(), 244.0, "about 250 a partition");
        // The big room over 100 partitions is 2 500 each; 50 MB/s of 250 bytes are 200 000.
        near(250_000.0 / 100.0, 2_500.0);
        near(50e6 / BYTES, 200_000.0);
        // Here it is spread over all of them, so that changing a number never moves a user between owners.
        near(Plan::of(stadium(), &TEXTBOOK).shards.raw_per_partition, 250_000.0 / 1_024.0);
        // One partition for all of it would be full.
        assert!(stadium().rate > 50e6 / BYTES);
    }

    #[test]
    fn derivation_7_ten_million_viewers_are_100_gateways_and_150_with_a_zone_to_spare() {
        assert_eq!(parts(10e6, 100_000.0), 100);
        assert_eq!(with_a_zone_to_spare(100), 150);
        assert_eq!(150 - 150 / ZONES, 100, "what is left is enough");
    }

    #[test]
    fn derivation_8_a_room_of_five_million_has_100_parts_of_62_5_megabytes_a_second() {
        assert_eq!(parts(VIEWERS, 50_000.0), 100);
        near(deliveries(50_000.0, 5.0), 250_000.0);
        near(deliveries(50_000.0, 5.0) * BYTES, 62.5e6);
        assert!(gbit(62.5e6) < 25.0 * MEASURED.network_share, "half a gigabit");
    }

    #[test]
    fn derivation_9_partitions_are_1024_however_many_rooms_there_are() {
        for viewers in [1_000_000, 5_000_000, 30_000_000] {
            assert_eq!(Plan::of(Evening { viewers, ..stadium() }, &TEXTBOOK).shards.partitions, 1_024);
        }
        // A topic of each kind for each of 50 000 rooms is what a controller no longer carries.
        assert_eq!(50_000 * 4, 200_000);
    }

    /// The original also says that an exact trim costs O(log N) an append: it costs what is evicted, one entry for each appended.
    /// Only its sizes are used here; a ring forgets from its old end.
    #[test]
    fn derivation_10_what_is_kept_for_resumes_is_250_kilobytes_a_room() {
        near(1_000.0 * BYTES, 250e3);
        near(1_000.0 * BYTES * 50_000.0, 12.5e9);
    }

    #[test]
    fn derivation_11_a_lease_a_room_would_be_12_8_megabytes() {
        near(256.0 * 50_000.0, 12.8e6);
        // A lease for each shard of partitions is what is planned: it does not grow with rooms at all.
        assert!(256.0 * f64::from(PARTITIONS) < 12.8e6);
    }

    /// It gives 80 and 130 without a derivation. 80 is the event and five million others at three comments a second; 130 is a second
    /// event of the same size in the same moment.
    #[test]
    fn everything_is_50_and_80_and_in_the_greatest_moment_130_gigabits() {
        let event = Plan::of(stadium(), &TEXTBOOK).room.gbit;
        let others = gbit(deliveries(5e6, 3.0) * BYTES);
        near(event, 50.0);
        near(event + others, 80.0);
        near(event + others + event, 130.0);
        // By its own long tail (100 viewers a room, one comment in 20 s each) the others are shown five a second: 50, not 30.
        near(gbit(deliveries(5e6, 100.0 * 0.05) * BYTES), 50.0);
    }

    #[test]
    fn put_right_judging_everything_is_20_000_calls_at_once_and_judging_winners_38() {
        let shards = Plan::of(stadium(), &MEASURED).shards;
        near(shards.verdicts_under_way_unsampled, 20_000.0);
        near(shards.verdicts_under_way, 38.4);
    }

    /// 120 000 comments a second in one room with windows of 100 ms: 10 batches a second to a gateway, and not 2 000 of 60.
    #[test]
    fn put_right_a_room_sends_a_gateway_one_batch_a_window() {
        near(batches(120_000.0, 0.1), 10.0);
        near(120_000.0 / batches(120_000.0, 0.1), 12_000.0);
    }

    #[test]
    fn a_zone_to_spare_is_a_third_and_never_less_than_one_machine() {
        for (needed, all) in [(1, 3), (2, 3), (3, 6), (4, 6), (5, 9), (100, 150), (101, 153)] {
            assert_eq!(with_a_zone_to_spare(needed), all, "{needed}");
        }
    }

    #[test]
    fn by_measured_costs_the_stadium_needs_what_the_sizing_page_says() {
        let plan = Plan::of(Evening { body_bytes: 100.0, gbit: 10.0, ..stadium() }, &MEASURED);
        assert_eq!(plan.region.cores.ceil(), 55.0);
        assert_eq!((plan.region.gbit * 10.0).round(), 148.0);
        near(plan.region.memory_gb, 12.5);
        assert_eq!((plan.region.machines_needed, plan.region.machines, plan.machines), (4, 6, 24));
        assert_eq!((plan.shards.needed, plan.shards.home), (12, 18));
    }

    #[test]
    fn a_room_that_is_not_sampled_shows_everything() {
        let small = Evening { viewers: 8_000, rate: 10.0, regions: 1, ..stadium() };
        let plan = Plan::of(small, &MEASURED);
        assert!(!plan.room.sampled);
        near(plan.room.keep_fraction, 1.0);
        near(plan.room.shown, 10.0);
        assert_eq!(plan.shards.standby, 0);
    }

    #[test]
    fn whatever_is_asked_a_lost_zone_leaves_enough() {
        for viewers in [1, 1_000, 60_000, 1_000_000, 30_000_000] {
            for rate in [0.1, 20.0, 5_000.0, 1_500_000.0] {
                for regions in [1, 3, 8] {
                    for gbit in [1.0, 25.0] {
                        let evening = Evening { viewers, rate, regions, gbit, ..stadium() };
                        let plan = Plan::of(evening, &MEASURED);
                        let at = format!("{evening:?}");
                        assert!(plan.warm.viewers_zone_lost >= viewers as f64 * (1.0 - 1e-9), "{at}");
                        assert!(plan.region.network_use <= MEASURED.network_share + 1e-9, "{at}");
                        assert!(plan.region.cpu_use <= MEASURED.core_share + 1e-9, "{at}");
                    }
                }
            }
        }
    }
}
