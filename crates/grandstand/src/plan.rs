//! `grandstand plan`: what an evening of so many viewers needs, from measured costs. It asks no server and no machine.

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;

use arithmetic::{Evening, MEASURED, Plan, ZONES};

mod arithmetic;

/// Audiences that are worth a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Tier {
    /// A million viewers in two regions.
    #[value(name = "1M")]
    Stream,
    /// Five million in four regions.
    #[value(name = "5M")]
    Stadium,
    /// Thirty million in eight regions.
    #[value(name = "30M")]
    Nation,
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  grandstand plan --viewers 5M --rate 250k --regions 4\n  grandstand plan --tier 30M --cores 32 --gbit 25\n  grandstand plan --viewers 8000 --rate 10 --cores 2 --gbit 1 --json"
)]
pub struct Args {
    /// Viewers of the room at its peak, over all regions: 800000, 250k, 5M.
    #[arg(long, value_parser = viewers, required_unless_present = "tier")]
    viewers: Option<u64>,
    /// Viewers and regions of a known size.
    #[arg(long, value_enum, conflicts_with_all = ["viewers", "regions"])]
    tier: Option<Tier>,
    /// Comments said a second. Without it: one in twenty seconds of every viewer, which is a stress figure; 400 to 1 000 times less was seen in
    /// real rooms.
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
    /// Regions that the viewers are spread over evenly.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    regions: u64,
    /// Comments a second that a viewer of a sampled room is shown at most.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=50))]
    cap: u64,
    /// Bytes of a comment's text.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=2_000))]
    body_bytes: u64,
    /// Viewers come without TLS (it ends in front of the machines).
    #[arg(long)]
    plain: bool,
    /// Cores of a gateway machine.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=512))]
    cores: u64,
    /// Gigabits a second of its network.
    #[arg(long, default_value_t = 10.0, value_parser = gbit)]
    gbit: f64,
    /// The rate in a great moment, as a multiple of `--rate`.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100))]
    spike: u64,
    /// Viewers that come a minute when the crowd comes. Without it: four in a hundred of all.
    #[arg(long, value_parser = viewers)]
    joins_per_minute: Option<u64>,
    /// Seconds from asking for one more machine until it serves.
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    reaction_seconds: u64,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// One comment in twenty seconds of every viewer.
pub fn stress_rate(viewers: u64) -> f64 {
    viewers as f64 * 0.05
}

impl Args {
    fn evening(&self) -> Evening {
        let (viewers, regions) = match self.tier {
            Some(Tier::Stream) => (1_000_000, 2),
            Some(Tier::Stadium) => (5_000_000, 4),
            Some(Tier::Nation) => (30_000_000, 8),
            None => (self.viewers.expect("clap wants viewers or a tier"), self.regions),
        };
        Evening {
            viewers,
            rate: self.rate.unwrap_or_else(|| stress_rate(viewers)),
            regions,
            cap: self.cap as f64,
            body_bytes: self.body_bytes as f64,
            tls: !self.plain,
            cores: self.cores,
            gbit: self.gbit,
            spike: self.spike as f64,
            joins_per_minute: self.joins_per_minute.map_or(viewers as f64 * 0.04, |n| n as f64),
            reaction_seconds: self.reaction_seconds as f64,
        }
    }
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let evening = args.evening();
    anyhow::ensure!(
        evening.viewers >= evening.regions,
        "--regions: {} viewers cannot be spread over {} regions",
        evening.viewers,
        evening.regions
    );
    let plan = Plan::of(evening, &MEASURED);
    let one_log = MEASURED.publishes * MEASURED.log_share;
    anyhow::ensure!(
        plan.room.sampled || evening.rate <= one_log,
        "--rate: a room that is not sampled is in one log, which takes {} comments a second",
        short(one_log)
    );
    match args.json {
        true => println!("{}", serde_json::to_string(&plan)?),
        false => print!("{}", table(&plan)),
    }
    Ok(ExitCode::SUCCESS)
}

/// A number with `k`, `M` or `G` after it.
fn quantity(text: &str) -> Option<f64> {
    let (number, unit) = match text.char_indices().next_back()? {
        (at, 'k') => (&text[..at], 1e3),
        (at, 'M') => (&text[..at], 1e6),
        (at, 'G') => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    // `parse` would take "inf", "1e9" and "+5", too.
    let plain =
        number.bytes().all(|b| b.is_ascii_digit() || b == b'.') && number.starts_with(|c: char| c.is_ascii_digit());
    plain.then(|| number.parse::<f64>().ok()).flatten().map(|n| n * unit)
}

const QUANTITY: &str = "a number, with k, M or G after it where wanted: 800000, 250k, 1.5M";

fn viewers(text: &str) -> Result<u64, String> {
    let n = quantity(text).ok_or(QUANTITY)?;
    let whole = n.fract() == 0.0 && (1.0..=1e10).contains(&n);
    if whole { Ok(n as u64) } else { Err("a whole number of 1 to 10G".to_owned()) }
}

fn rate(text: &str) -> Result<f64, String> {
    let n = quantity(text).ok_or(QUANTITY)?;
    if n > 0.0 && n <= 1e10 { Ok(n) } else { Err("more than 0 and at most 10G comments a second".to_owned()) }
}

fn gbit(text: &str) -> Result<f64, String> {
    let n = quantity(text).ok_or(QUANTITY)?;
    if (0.1..=1_000.0).contains(&n) { Ok(n) } else { Err("0.1 to 1000 gigabits a second".to_owned()) }
}

/// A number as people read it: three digits, and a unit from ten thousand on.
fn short(n: f64) -> String {
    let digits = |n: f64| match n {
        n if n >= 100.0 || n.fract() == 0.0 => format!("{n:.0}"),
        n if n >= 10.0 => format!("{n:.1}"),
        n => format!("{n:.2}"),
    };
    match n {
        n if n >= 1e12 => format!("{n:.2e}"),
        n if n >= 999.5e6 => format!("{} G", digits(n / 1e9)),
        n if n >= 999.5e3 => format!("{} M", digits(n / 1e6)),
        n if n >= 1e4 => format!("{} k", digits(n / 1e3)),
        n => digits(n),
    }
}

/// Rows of what is asked, the answer, and how it comes about, under headings.
#[derive(Default)]
struct Rows(Vec<(&'static str, String, String)>);

impl Rows {
    fn head(&mut self, text: &'static str) {
        self.0.push((text, String::new(), String::new()));
    }

    fn row(&mut self, what: &'static str, answer: String, how: String) {
        self.0.push((what, answer, how));
    }

    fn text(&self) -> String {
        let wide = self.0.iter().map(|(what, ..)| what.chars().count() + 2).max().unwrap_or(0);
        let answers = self.0.iter().map(|(_, answer, _)| answer.chars().count()).max().unwrap_or(0);
        let line = |(what, answer, how): &(&str, String, String)| match answer.is_empty() {
            true => format!("{what}\n"),
            false => format!("  {what:<wide$}{answer:>answers$}   {how}\n"),
        };
        self.0.iter().map(line).collect()
    }
}

/// For people.
fn table(plan: &Plan) -> String {
    let mut rows = Rows::default();
    the_room(plan, &mut rows);
    gateways(plan, &mut rows);
    owners(plan, &mut rows);
    warm(plan, &mut rows);
    rows.text()
}

fn the_room(plan: &Plan, rows: &mut Rows) {
    let Plan { evening, room, region, .. } = plan;
    rows.head("The room");
    let how = match room.sampled {
        true => format!("sampled: keep fraction {:.1e} of {} said a second", room.keep_fraction, short(evening.rate)),
        false => "all that is said: not sampled".to_owned(),
    };
    rows.row("a viewer is shown", format!("{} comments/s", short(room.shown)), how);
    let cpu = region.cores * MEASURED.core_share * 1e6 / region.viewers;
    let (frames, each) = (short(room.frames_per_viewer), short(room.comments_per_frame));
    let how = format!("{frames} frames/s of {each}, {cpu:.1} core-µs a second");
    rows.row("a viewer costs", format!("{} B/s", short(room.bytes_per_viewer)), how);
    let how = format!("everything to everyone: {}/s", short(room.deliveries_unsampled));
    rows.row("deliveries", format!("{}/s", short(room.deliveries)), how);
    let how = format!("everything to everyone: {} Gbit/s", short(room.gbit_unsampled));
    rows.row("egress, all regions", format!("{} Gbit/s", short(room.gbit)), how);
}

fn gateways(plan: &Plan, rows: &mut Rows) {
    let Plan { evening, region, .. } = plan;
    rows.head("Gateways, each region");
    let how = format!("{} over {}", short(evening.viewers as f64), evening.regions);
    rows.row("viewers", short(region.viewers), how);
    rows.row("cores", short(region.cores), format!("at {:.0} % of each", MEASURED.core_share * 100.0));
    let how = format!("at {:.0} % of each card", MEASURED.network_share * 100.0);
    rows.row("network", format!("{} Gbit/s", short(region.gbit)), how);
    let how = format!("and {:.0} MB of rings a machine", MEASURED.ring_bytes / 1e6);
    rows.row("memory", format!("{} GB", short(region.memory_gb)), how);
    let (cores, gbit, needed) = (evening.cores, evening.gbit, region.machines_needed);
    let how = format!("of {cores} cores and {gbit} Gbit/s: {needed} needed, and any of {ZONES} zones to spare");
    rows.row("machines", region.machines.to_string(), how);
    let how = format!(
        "a zone lost: cpu {:.0} %, network {:.0} %, {} GB, a score's last viewer after {} ms",
        region.cpu_use * 100.0,
        region.network_use * 100.0,
        short(region.memory_per_machine_gb),
        short(region.score_spread_ms)
    );
    rows.row("a machine, all zones up", format!("{} viewers", short(region.viewers_per_machine)), how);
    let lost = &region.zone_lost;
    let how = format!("{} viewers, admission.rate {} on each machine left", short(lost.come_back), lost.admission_rate);
    rows.row("a zone lost", format!("back in {} s", short(lost.back_within_seconds)), how);
}

fn owners(plan: &Plan, rows: &mut Rows) {
    let Plan { evening, room, shards, .. } = plan;
    rows.head("Owners and log, the room's home region");
    let how = format!(
        "{} needed at {} comments/s each ({:.0} % of {}), and any zone to spare; {} cores of deciding",
        shards.needed,
        short(MEASURED.publishes * MEASURED.log_share),
        MEASURED.log_share * 100.0,
        short(MEASURED.publishes),
        short(shards.owner_cores)
    );
    rows.row("shards", shards.home.to_string(), how);
    let how = format!("keys of the last ten minutes; {} GB in each", short(shards.memory_gb / shards.needed as f64));
    rows.row("memory of the owners", format!("{} GB", short(shards.memory_gb)), how);
    rows.row("shards where it would move", shards.standby.to_string(), "warm in a second region".to_owned());
    let (raw, sequenced) = (short(shards.raw_per_partition), short(shards.sequenced));
    let how = match room.sampled {
        true => format!("fixed; {raw} raw comments/s in each, {sequenced}/s of what is shown in one"),
        false => format!("fixed; the room is in one of them: {sequenced} comments/s"),
    };
    rows.row("partitions", shards.partitions.to_string(), how);
    let how = format!("{} GB an hour, before replicas", short(shards.log_gb_per_hour));
    rows.row("log", format!("{} MB/s", short(shards.log_mb_per_second)), how);
    let how = format!("{} Mbit/s", short(shards.link_mbit_per_machine));
    rows.row("link to a gateway machine", format!("{} batches/s", short(shards.link_batches_per_second)), how);
    let all = short(shards.verdicts_under_way_unsampled);
    let how = format!("at 80 ms each, of what is sequenced; of everything said: {all}");
    rows.row("verdicts under way", short(shards.verdicts_under_way.ceil()), how);
    let taken = match shards.spike_taken >= shards.spike {
        true => "all taken".to_owned(),
        false => format!("{}/s taken, others told `overloaded` and tried again", short(shards.spike_taken)),
    };
    let how = format!("{} × the rate; {taken}", evening.spike);
    rows.row("a great moment", format!("{}/s", short(shards.spike)), how);
}

fn warm(plan: &Plan, rows: &mut Rows) {
    let Plan { evening, warm, .. } = plan;
    rows.head("Ready before an announced start");
    let how = "all of them: who adds machines when the crowd has come, adds them after it has gone".to_owned();
    rows.row("gateway machines", warm.machines.to_string(), how);
    let how = format!("{} at home, {} where it would move", plan.shards.home, plan.shards.standby);
    rows.row("shards", warm.shards.to_string(), how);
    let how = format!("{} with a zone of every region lost", short(warm.viewers_zone_lost));
    rows.row("they carry", format!("{} viewers", short(warm.viewers_all_up)), how);
    let how = format!(
        "{} cores to let in; {} more in the {} s that another machine takes: {}",
        short(warm.join_cores),
        short(warm.come_in_reaction),
        evening.reaction_seconds,
        if warm.holds { "they fit in" } else { "they do NOT fit in, plan for more viewers" }
    );
    rows.row("the crowd comes", format!("{}/min", short(evening.joins_per_minute)), how);
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::arithmetic::{MEASURED, Plan};
    use super::{Args, rate, table, viewers};

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn asked(words: &str) -> Result<Args, String> {
        let words = std::iter::once("plan").chain(words.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.args).map_err(|e| e.to_string())
    }

    #[test]
    fn quantities_are_written_as_people_say_them() {
        assert_eq!((viewers("5M"), viewers("250k"), viewers("800000")), (Ok(5_000_000), Ok(250_000), Ok(800_000)));
        assert_eq!((rate("0.5"), rate("1.5M")), (Ok(0.5), Ok(1_500_000.0)));
    }

    #[test]
    fn bad_input_is_told_the_rule() {
        for (words, rule) in [
            ("--viewers many", "with k, M or G after it"),
            ("--viewers 5m", "with k, M or G after it"),
            ("--viewers=-5", "with k, M or G after it"),
            ("--viewers 1e9", "with k, M or G after it"),
            ("--viewers 0", "a whole number of 1 to 10G"),
            ("--viewers 0.5", "a whole number of 1 to 10G"),
            ("--viewers 11G", "a whole number of 1 to 10G"),
            ("--viewers 5M --rate 0", "more than 0"),
            ("--viewers 5M --regions 0", "1..=64"),
            ("--viewers 5M --cap 51", "1..=50"),
            ("--viewers 5M --gbit 0", "0.1 to 1000"),
            ("--viewers 5M --body-bytes 2001", "1..=2000"),
            ("--tier 5M --viewers 5M", "cannot be used with"),
            ("", "--viewers"),
        ] {
            let said = asked(words).err().unwrap_or_else(|| panic!("{words} was taken"));
            assert!(said.contains(rule), "{words}: {said}");
        }
        let one_log = super::run(&asked("--viewers 3 --rate 40k").unwrap()).unwrap_err().to_string();
        assert!(one_log.contains("not sampled is in one log, which takes 21 k"), "{one_log}");
        let spread = super::run(&asked("--viewers 3 --regions 4").unwrap()).unwrap_err().to_string();
        assert!(spread.contains("3 viewers cannot be spread over 4 regions"), "{spread}");
    }

    #[test]
    fn a_tier_is_its_viewers_regions_and_stress_rate() {
        for (tier, viewers, rate, regions) in
            [("1M", 1_000_000, 5e4, 2), ("5M", 5_000_000, 2.5e5, 4), ("30M", 30_000_000, 1.5e6, 8)]
        {
            let evening = asked(&format!("--tier {tier}")).unwrap().evening();
            assert_eq!((evening.viewers, evening.rate, evening.regions), (viewers, rate, regions));
        }
        assert_eq!(
            asked("--tier 5M").unwrap().evening(),
            asked("--viewers 5M --rate 250k --regions 4").unwrap().evening()
        );
    }

    #[test]
    fn every_cost_stands_in_the_document_it_names() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for cost in MEASURED.named() {
            let document = std::fs::read_to_string(root.join(cost.document)).expect(cost.document);
            assert!(document.contains(cost.words), "{}: {} does not say: {}", cost.name, cost.document, cost.words);
        }
    }

    #[test]
    fn the_sizing_page_shows_what_the_command_says() {
        let page = include_str!("../../../docs/operate/sizing.md");
        let (begin, end) = ("<!-- plan: generated, begin -->\n```\n", "```\n<!-- plan: generated, end -->");
        let shown = page.split_once(begin).and_then(|(_, rest)| rest.split_once(end)).expect("the page's block").0;
        let said = table(&Plan::of(asked("--viewers 5M --rate 250k --regions 4").unwrap().evening(), &MEASURED));
        assert_eq!(shown, said, "put the output of `grandstand plan --viewers 5M --rate 250k --regions 4` there");
    }

    #[test]
    fn json_has_the_evening_the_answers_and_the_costs() {
        let plan = Plan::of(asked("--tier 30M").unwrap().evening(), &MEASURED);
        let json: serde_json::Value = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
        assert_eq!(json["evening"]["viewers"], 30_000_000);
        for at in ["/region/machines", "/shards/home", "/warm/machines", "/costs/0/document", "/room/keep_fraction"] {
            assert!(json.pointer(at).is_some_and(|v| !v.is_null()), "{at}");
        }
    }
}
