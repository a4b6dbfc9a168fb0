//! What gateway processes and the shard process say to each other, as bytes.
//!
//! A frame is a length (u32), a tag (u8) and the fields in the order of the code, little-endian, texts and lists with their
//! length before them. Both ends are the same build (`Hello` says which, another is turned away), so nothing here is kept for
//! ever and no field is optional to a reader. Reading is strict: a tag, length, name or flag that is not one of ours ends the
//! link, as does a byte too many; what a length promises is never allocated before it is there.
//!
//! The awkward case is a worker's number: a gateway process says its own (`process << 8 | worker`), the shard process keeps
//! the link's serial above it, so that an answer never reaches the process that came after.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use grandstand_core::access::{Access, Revoked, Term};
use grandstand_core::admission::Limit;
use grandstand_core::bundles::{Here, There};
use grandstand_core::ids::{Epoch, EpochSpan, EventId, Partition, Position, Pseq, Revision, Seq};
use grandstand_core::likes::{Frame, RoomLikes, Round, Totals};
use grandstand_core::names::{ClientMsgId, Key, LikeKind, RoomId, UserId};
use grandstand_core::owner::answer::{Answer, Fate};
use grandstand_core::owner::command::{Author, Publish, React, ReportIn, Standing};
use grandstand_core::places;
use grandstand_core::record::{Audience, Lane, Policy, RetractTarget, Room, RoomState};
use grandstand_core::regions::Region;
use grandstand_core::reject::{Code, Reject};
use grandstand_core::sampler::pick::WindowNumber;
use grandstand_core::sampler::switch::Sampling;
use grandstand_core::sampler::{Preset, Rules, Weights};
use grandstand_core::time::Wall;
use grandstand_core::viewer::people::People;
use grandstand_core::viewer::resume::{self, Reason};
use grandstand_core::viewer::walk::Skipped;
use grandstand_core::watch::Silence;
use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::peers::To;
use super::{
    AskFate, Batch, ConnKey, Delay, Fetch, HttpPart, NoRoom, Page, Past, Piece, ReadRefused, Resumed, RoomBan,
    RoomInfo, Seen, Served, SiteBanner, SiteList, ToWorker, Won, WorkerId,
};
use crate::admission::Change;
use crate::kernel::Taken;
use crate::shedding;

/// Grows with every change of what follows.
pub const VERSION: u32 = 12;
/// The longest frame: the largest answer of control and room for its head.
pub const FRAME_MAX: usize = 16 << 20;
/// A round of likes of the longest names, each entry in a room of its own, is one frame.
const _: () = assert!(grandstand_core::likes::ENTRIES_MAX * 240 < FRAME_MAX);
const READ_BYTES: usize = 64 * 1024;

/// Why bytes are no frame of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    #[error("a frame ends before its fields do")]
    Short,
    #[error("a frame goes on behind its fields")]
    Long,
    #[error("a frame is above 16 MiB")]
    TooLong,
    #[error("a field does not hold what it must")]
    Field,
}

/// What a gateway process says.
pub enum Up {
    /// The first word; nothing else is read before it.
    Hello(Hello),
    Subscribe {
        worker: WorkerId,
        room: RoomId,
    },
    /// The process's last viewer of the room left.
    Unsubscribe {
        room: RoomId,
    },
    Publish {
        conn: ConnKey,
        request: u64,
        publish: Box<Publish>,
    },
    /// Nobody is answered.
    React(React),
    AskFate(AskFate),
    /// The same.
    Told(Box<ReportIn>),
    Fetch(Fetch),
    Http {
        conn: ConnKey,
        peer: SocketAddr,
        request: Box<http::Request<Bytes>>,
    },
    /// The last chunk of this connection's response has left.
    HttpLeft {
        conn: ConnKey,
    },
    /// This connection's response is for nobody any more.
    HttpGone {
        conn: ConnKey,
    },
    /// For workers of other gateway processes.
    Pass {
        to: To,
        mail: ToWorker,
    },
    /// What the process counts, every second: it lives.
    Report(Report),
    /// What came in likes since the last round, all rooms, numbered by the process.
    Likes(Frame),
    /// Whether the process has places for more viewers: at once when it changes.
    Places(places::Word),
    /// What changed in what users and addresses hold that are near a limit.
    Bundles(Vec<Here>),
}

#[derive(Clone, Debug)]
pub struct Hello {
    pub version: u32,
    pub build: String,
    /// 0 to `PROCESSES_MAX` - 1.
    pub process: u8,
    pub n_workers: u8,
    pub pid: u32,
    /// What operators asked of it last, and of all gateways, as far as it knows.
    pub order: Option<Order>,
    pub whole: Option<Order>,
}

/// The figures of a gateway process, and what changed in its rooms since the last report.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// In the order of `Metrics::numbers`.
    pub numbers: Vec<u64>,
    pub link: LinkNumbers,
    pub taken: Taken,
    pub rooms: Vec<RoomNumbers>,
}

/// What came over the link into one process, since it started.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LinkNumbers {
    pub batches: u64,
    /// Batches that no worker of the process wanted.
    pub useless: u64,
    pub bytes: u64,
    /// Times the link was there.
    pub joined: u64,
    /// What found a worker's mailbox full, and the events in it, in the order of `LANES`.
    pub undelivered: u64,
    pub dropped: [u64; LANES_COUNTED],
}

impl LinkNumbers {
    fn all(&self) -> [u64; LINK_NUMBERS] {
        let LinkNumbers { batches, useless, bytes, joined, undelivered, dropped: [priority, comments] } = *self;
        [batches, useless, bytes, joined, undelivered, priority, comments]
    }

    fn of_all(all: [u64; LINK_NUMBERS]) -> LinkNumbers {
        let [batches, useless, bytes, joined, undelivered, priority, comments] = all;
        LinkNumbers { batches, useless, bytes, joined, undelivered, dropped: [priority, comments] }
    }

    pub fn add(&mut self, other: &LinkNumbers) {
        let (mut sums, others) = (self.all(), other.all());
        for (sum, n) in sums.iter_mut().zip(others) {
            *sum = sum.saturating_add(n);
        }
        *self = LinkNumbers::of_all(sums);
    }
}

const LANES_COUNTED: usize = crate::metrics::LANES.len();
const LINK_NUMBERS: usize = 5 + LANES_COUNTED;

/// A room in one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoomNumbers {
    pub room: RoomId,
    pub viewers: u32,
    pub held: u32,
    pub served: Served,
    /// Who watches, as its workers saw last.
    pub seen: Seen,
}

/// A room in all the other processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Elsewhere {
    pub room: RoomId,
    pub viewers: u32,
    pub held: u32,
    /// People of the whole room, and the viewers they were counted among.
    pub people: u32,
    pub counted: u32,
}

/// What the shard process says.
pub enum Down {
    /// The hello was taken; what follows is for this process.
    Welcome(Share),
    /// It was not, and why.
    Refused(String),
    /// For one worker, or for all that the process's hub knows to want it.
    Mail(WorkerId, ToWorker),
    /// How the shard stands, four times a second: it lives.
    Status(Status),
    /// What changed in the other processes.
    Elsewhere(Vec<Elsewhere>),
    /// What an operator asks of this gateway.
    Order(Order),
    /// Another gateway came or went, or the rate was changed.
    Share(Share),
    /// What others hold of users and addresses that are near a limit.
    Bundles(Vec<There>),
}

/// A gateway's part of the rate of new streams.
#[derive(Clone, Debug)]
pub struct Share {
    /// Gateways that share the rate.
    pub of: u32,
    /// Gateways beside this one that take streams.
    pub others: u32,
    /// The last change of the rate they share. `None`: it is the configured one.
    pub whole: Option<Order>,
    /// Whether it leaves the port to them.
    pub port: places::Answer,
}

/// What an operator asked of a gateway.
#[derive(Clone, Debug)]
pub struct Order {
    pub what: Ordered,
    pub change: Change,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ordered {
    /// `None`: the configured rate.
    Admission(Option<Limit>),
    /// Everyone is sent away within this.
    Drain(Duration),
    /// What viewers of wide rooms are given.
    Shedding(shedding::Order),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    pub ready: bool,
    pub no_space: bool,
    pub head: Position,
    pub epoch: Option<Epoch>,
    pub durability: &'static str,
}

/// What `durability` may be; the last is "not known yet".
const DURABILITIES: [&str; 4] = ["fsync", "interval", "none", "unknown"];
/// The types of events that pieces may have.
const KINDS: [&str; 6] = ["comment", "score_event", "gift", "gift_combo", "retract", "config"];
const LANES: [Lane; 4] = [Lane::Priority, Lane::Comment, Lane::Latest, Lane::Site];
const AUDIENCES: [Audience; 3] = [Audience::Everyone, Audience::Author, Audience::Nobody];
const STANDINGS: [Standing; 3] = [Standing::Viewer, Standing::Moderator, Standing::Backend];
const REASONS: [Reason; 2] = [Reason::TooOld, Reason::UnknownCursor];

// ---- frames ----------------------------------------------------------------------------------------------------------

/// Appends one frame. Errors: it would be above [`FRAME_MAX`]; nothing is appended then.
pub fn write_up(up: &Up, out: &mut Vec<u8>) -> Result<(), Fault> {
    frame(out, |w| match up {
        Up::Hello(hello) => {
            w.u8(1);
            w.u32(hello.version);
            w.text(&hello.build);
            w.u8(hello.process);
            w.u8(hello.n_workers);
            w.u32(hello.pid);
            w.opt(hello.order.as_ref(), Writer::order);
            w.opt(hello.whole.as_ref(), Writer::order);
        }
        Up::Subscribe { worker, room } => {
            w.u8(2);
            w.worker(*worker);
            w.text(room.as_str());
        }
        Up::Unsubscribe { room } => {
            w.u8(3);
            w.text(room.as_str());
        }
        Up::Publish { conn, request, publish } => {
            w.u8(4);
            w.conn(*conn);
            w.u64(*request);
            w.publish(publish);
        }
        Up::React(React { room, user, target }) => {
            w.u8(20);
            w.text(room.as_str());
            w.text(user.as_str());
            w.u64(target.value());
        }
        Up::AskFate(AskFate { conn, room, client_msg_id, raw_id }) => {
            w.u8(21);
            w.conn(*conn);
            w.text(room.as_str());
            w.text(client_msg_id.as_str());
            w.u64(raw_id.value());
        }
        Up::Told(told) => {
            w.u8(50);
            w.text(told.room.as_str());
            w.text(told.user.as_str());
            w.u64(told.report.event.value());
            w.text(&told.report.reason);
        }
        Up::Fetch(Fetch::Resume { conn, request, room, cursor }) => {
            w.u8(5);
            w.conn(*conn);
            w.u64(*request);
            w.text(room.as_str());
            w.u64(cursor.value());
        }
        Up::Fetch(Fetch::Page { conn, request, room, after, comments_from }) => {
            w.u8(6);
            w.conn(*conn);
            w.u64(*request);
            w.text(room.as_str());
            w.u64(after.value());
            w.u64(comments_from.value());
        }
        Up::Http { conn, peer, request } => {
            w.u8(7);
            w.conn(*conn);
            w.text(&peer.to_string());
            w.text(request.method().as_str());
            w.text(&request.uri().to_string());
            w.headers(request.headers());
            w.bytes(request.body());
        }
        Up::HttpLeft { conn } => {
            w.u8(8);
            w.conn(*conn);
        }
        Up::HttpGone { conn } => {
            w.u8(9);
            w.conn(*conn);
        }
        Up::Report(report) => {
            w.u8(10);
            w.list(&report.numbers, |w, n| w.u64(*n));
            for n in report.link.all() {
                w.u64(n);
            }
            let Taken { cpu_micros, resident_bytes, memory_permille, descriptors, descriptors_max } = report.taken;
            for n in [cpu_micros, resident_bytes, memory_permille, descriptors, descriptors_max] {
                w.u64(n);
            }
            w.list(&report.rooms, |w, room| {
                w.text(room.room.as_str());
                w.u32(room.viewers);
                w.u32(room.held);
                let Served { delivered, skipped, sampled } = room.served;
                for n in [delivered, skipped, sampled] {
                    w.u64(n);
                }
                w.seen(&room.seen);
            });
        }
        Up::Likes(frame) => {
            w.u8(12);
            let (sender, number) = frame.from.expect("what crosses the link is numbered");
            w.u64(sender);
            w.u64(number);
            w.duration(frame.round.span);
            w.list(&frame.round.rooms, |w, likes| {
                w.text(likes.room.as_str());
                w.list(&likes.kinds, |w, (kind, users)| {
                    w.text(kind.as_str());
                    w.list(users, |w, (user, n)| {
                        w.text(user.as_str());
                        w.u32(*n);
                    });
                });
            });
        }
        Up::Fetch(Fetch::Past { worker, request, room, upto, seen }) => {
            w.u8(11);
            w.worker(*worker);
            w.u64(*request);
            w.text(room.as_str());
            w.u64(upto.value());
            w.u64(seen.value());
        }
        Up::Pass { to, mail } => {
            w.u8(32);
            w.pass(*to, mail);
        }
        Up::Places(word) => {
            w.u8(60);
            w.u32(word.number);
            w.flag(word.full);
        }
        Up::Bundles(news) => {
            w.u8(61);
            w.list(news, |w, here| {
                w.bundle(here.bundle);
                w.u32(here.n);
                w.flag(here.many);
            });
        }
    })
}

/// Reads what is behind a frame's length.
pub fn read_up(bytes: &[u8]) -> Result<Up, Fault> {
    let mut r = Reader(bytes);
    let up = match r.u8()? {
        1 => Up::Hello(Hello {
            version: r.u32()?,
            build: r.text()?.to_owned(),
            process: r.u8()?,
            n_workers: r.u8()?,
            pid: r.u32()?,
            order: r.opt(Reader::order)?,
            whole: r.opt(Reader::order)?,
        }),
        2 => Up::Subscribe { worker: r.worker()?, room: r.room()? },
        3 => Up::Unsubscribe { room: r.room()? },
        4 => Up::Publish { conn: r.conn()?, request: r.u64()?, publish: Box::new(r.publish()?) },
        50 => Up::Told(Box::new(ReportIn {
            room: r.room()?,
            user: r.user()?,
            report: grandstand_core::reports::Report { event: r.id()?, reason: r.shared()? },
        })),
        20 => Up::React(React { room: r.room()?, user: r.user()?, target: r.id()? }),
        21 => Up::AskFate(AskFate { conn: r.conn()?, room: r.room()?, client_msg_id: r.key()?, raw_id: r.id()? }),
        5 => Up::Fetch(Fetch::Resume { conn: r.conn()?, request: r.u64()?, room: r.room()?, cursor: r.position()? }),
        6 => Up::Fetch(Fetch::Page {
            conn: r.conn()?,
            request: r.u64()?,
            room: r.room()?,
            after: r.position()?,
            comments_from: r.position()?,
        }),
        7 => {
            let conn = r.conn()?;
            let peer = r.text()?.parse().map_err(|_| Fault::Field)?;
            let request = http::Request::builder().method(r.text()?).uri(r.text()?);
            let headers = r.headers()?;
            let body = Bytes::copy_from_slice(r.bytes()?);
            let mut request = request.body(body).map_err(|_| Fault::Field)?;
            *request.headers_mut() = headers;
            Up::Http { conn, peer, request: Box::new(request) }
        }
        8 => Up::HttpLeft { conn: r.conn()? },
        9 => Up::HttpGone { conn: r.conn()? },
        10 => Up::Report(Report {
            numbers: r.list(8, Reader::u64)?,
            link: {
                let mut all = [0; LINK_NUMBERS];
                for n in &mut all {
                    *n = r.u64()?;
                }
                LinkNumbers::of_all(all)
            },
            taken: Taken {
                cpu_micros: r.u64()?,
                resident_bytes: r.u64()?,
                memory_permille: r.u64()?,
                descriptors: r.u64()?,
                descriptors_max: r.u64()?,
            },
            // Text, two numbers, three long ones, who was seen.
            rooms: r.list(4 + 8 + 24 + 13, |r| {
                Ok(RoomNumbers {
                    room: r.room()?,
                    viewers: r.u32()?,
                    held: r.u32()?,
                    served: Served { delivered: r.u64()?, skipped: r.u64()?, sampled: r.u64()? },
                    seen: r.seen()?,
                })
            })?,
        }),
        12 => {
            let from = Some((r.u64()?, r.u64()?));
            let span = r.duration()?;
            let rooms = r.list(8, |r| {
                let room = r.room()?;
                let kinds = r.list(8, |r| {
                    let kind = LikeKind::parse(r.text()?).ok_or(Fault::Field)?;
                    Ok((kind, r.list(8, |r| Ok((r.user()?, r.u32()?)))?))
                })?;
                Ok(RoomLikes { room, kinds })
            })?;
            Up::Likes(Frame { from, round: Round { span, rooms: rooms.into() } })
        }
        11 => Up::Fetch(Fetch::Past {
            worker: r.worker()?,
            request: r.u64()?,
            room: r.room()?,
            upto: r.position()?,
            seen: r.position()?,
        }),
        32 => {
            let (to, mail) = r.pass()?;
            Up::Pass { to, mail }
        }
        60 => Up::Places(places::Word { number: r.u32()?, full: r.flag()? }),
        61 => Up::Bundles(r.list(14, |r| Ok(Here { bundle: r.bundle()?, n: r.u32()?, many: r.flag()? }))?),
        _ => return Err(Fault::Field),
    };
    r.end().map(|()| up)
}

/// Appends one frame. Errors: it would be above [`FRAME_MAX`]; nothing is appended then.
pub fn write_down(down: &Down, out: &mut Vec<u8>) -> Result<(), Fault> {
    frame(out, |w| match down {
        Down::Welcome(share) => {
            w.u8(1);
            w.share(share);
        }
        Down::Refused(why) => {
            w.u8(2);
            w.text(why);
        }
        Down::Mail(worker, mail) => {
            w.u8(3);
            w.worker(*worker);
            w.mail(mail);
        }
        Down::Status(status) => {
            w.u8(4);
            w.flag(status.ready);
            w.flag(status.no_space);
            w.u64(status.head.value());
            w.u32(status.epoch.map_or(0, Epoch::value));
            w.one_of(&DURABILITIES, &status.durability);
        }
        Down::Elsewhere(rooms) => {
            w.u8(5);
            w.list(rooms, |w, room| {
                w.text(room.room.as_str());
                for n in [room.viewers, room.held, room.people, room.counted] {
                    w.u32(n);
                }
            });
        }
        Down::Order(order) => {
            w.u8(6);
            w.order(order);
        }
        Down::Share(share) => {
            w.u8(7);
            w.share(share);
        }
        Down::Bundles(news) => {
            w.u8(8);
            w.list(news, |w, there| {
                w.bundle(there.bundle);
                w.opt(there.n.as_ref(), |w, n| w.u32(*n));
            });
        }
    })
}

/// Reads what is behind a frame's length.
pub fn read_down(bytes: &[u8]) -> Result<Down, Fault> {
    let mut r = Reader(bytes);
    let down = match r.u8()? {
        1 => Down::Welcome(r.share()?),
        2 => Down::Refused(r.text()?.to_owned()),
        3 => Down::Mail(r.worker()?, r.mail()?),
        4 => Down::Status(Status {
            ready: r.flag()?,
            no_space: r.flag()?,
            head: r.position()?,
            epoch: match r.u32()? {
                0 => None,
                n => Some(Epoch::new(n).ok_or(Fault::Field)?),
            },
            durability: r.one_of(&DURABILITIES)?,
        }),
        5 => Down::Elsewhere(r.list(20, |r| {
            let (room, viewers, held) = (r.room()?, r.u32()?, r.u32()?);
            Ok(Elsewhere { room, viewers, held, people: r.u32()?, counted: r.u32()? })
        })?),
        6 => Down::Order(r.order()?),
        7 => Down::Share(r.share()?),
        8 => Down::Bundles(r.list(10, |r| Ok(There { bundle: r.bundle()?, n: r.opt(Reader::u32)? }))?),
        _ => return Err(Fault::Field),
    };
    r.end().map(|()| down)
}

fn frame(out: &mut Vec<u8>, write: impl FnOnce(&mut Writer<'_>)) -> Result<(), Fault> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(&mut Writer(out));
    let len = out.len() - start - 4;
    if len > FRAME_MAX {
        out.truncate(start);
        return Err(Fault::TooLong);
    }
    out[start..start + 4].copy_from_slice(&(len as u32).to_le_bytes());
    Ok(())
}

/// Takes whole frames out of a stream of bytes.
#[derive(Default)]
pub struct Frames {
    buf: Vec<u8>,
    at: usize,
}

impl Frames {
    /// Appends what one read gave. Errors: the reader's own.
    pub fn fill(&mut self, from: &mut impl std::io::Read) -> std::io::Result<usize> {
        if self.at > 0 {
            self.buf.drain(..self.at);
            self.at = 0;
        }
        let len = self.buf.len();
        // Never what a length promises: only what one read may give.
        self.buf.resize(len + READ_BYTES, 0);
        let read = loop {
            match from.read(&mut self.buf[len..]) {
                // A signal ends a read that has a limit of time, whether anybody handles it or not.
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.buf.truncate(len + *read.as_ref().unwrap_or(&0));
        if self.buf.len() < READ_BYTES && self.buf.capacity() > 16 * READ_BYTES {
            self.buf.shrink_to(2 * READ_BYTES);
        }
        read
    }

    fn front(&self) -> Option<usize> {
        let len = self.buf.get(self.at..self.at + 4)?;
        Some(u32::from_le_bytes(len.try_into().expect("four bytes")) as usize + 4)
    }

    /// The next whole frame without its length. Errors: its length is above [`FRAME_MAX`].
    pub fn whole(&mut self) -> Result<Option<&[u8]>, Fault> {
        let Some(whole) = self.front() else { return Ok(None) };
        if whole - 4 > FRAME_MAX {
            return Err(Fault::TooLong);
        }
        let start = self.at;
        if self.buf.len() < start + whole {
            return Ok(None);
        }
        self.at += whole;
        Ok(Some(&self.buf[start + 4..start + whole]))
    }
}

// ---- writing ---------------------------------------------------------------------------------------------------------

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn u8(&mut self, n: u8) {
        self.0.push(n);
    }
    fn u16(&mut self, n: u16) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }
    fn u32(&mut self, n: u32) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }
    fn u64(&mut self, n: u64) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }
    fn flag(&mut self, yes: bool) {
        self.u8(u8::from(yes));
    }
    fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }
    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }
    fn opt<T>(&mut self, value: Option<&T>, write: impl FnOnce(&mut Self, &T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }
    fn list<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.u32(items.len() as u32);
        for item in items {
            write(self, item);
        }
    }
    fn one_of<T: PartialEq>(&mut self, all: &[T], one: &T) {
        self.u8(all.iter().position(|x| x == one).expect("the list is closed") as u8);
    }
    fn duration(&mut self, d: Duration) {
        self.u64(d.as_micros() as u64);
    }
    fn worker(&mut self, worker: WorkerId) {
        self.u16(worker.number());
    }
    fn conn(&mut self, conn: ConnKey) {
        self.worker(conn.worker);
        self.u32(conn.slot);
        self.u32(conn.generation);
    }
    fn headers(&mut self, headers: &HeaderMap) {
        self.u32(headers.len() as u32);
        for (name, value) in headers {
            self.text(name.as_str());
            self.bytes(value.as_bytes());
        }
    }

    fn seen(&mut self, seen: &Seen) {
        self.u32(seen.viewers);
        self.u32(seen.anonymous);
        match seen.users.parts() {
            Ok(marks) => {
                self.u8(0);
                self.list(marks, |w, mark| w.u32(*mark));
            }
            Err(registers) => {
                self.u8(1);
                self.bytes(registers);
            }
        }
    }

    fn totals(&mut self, totals: &Totals) {
        self.list(totals, |w, (kind, total)| {
            w.text(kind.as_str());
            w.u64(*total);
        });
    }

    fn publish(&mut self, publish: &Publish) {
        self.text(publish.room.as_str());
        self.text(publish.author.user.as_str());
        self.text(&publish.author.display);
        self.list(&publish.author.badges, |w, badge| w.text(badge));
        self.one_of(&STANDINGS, &publish.author.standing);
        self.text(publish.client_msg_id.as_str());
        self.text(&publish.text);
        self.opt(publish.reply_to.as_ref(), |w, id| w.u64(id.value()));
    }

    fn access(&mut self, access: &Access) {
        let revoked: Vec<_> = access.revoked.iter().collect();
        self.list(&revoked, |w, (what, term)| {
            let (of, name) = match what {
                Revoked::User(user) => (0, user.as_str()),
                Revoked::Session(session) => (1, &**session),
                Revoked::Key(key) => (2, &**key),
            };
            w.u8(of);
            w.text(name);
            w.term(term);
        });
        self.opt(access.outage.as_ref(), Writer::term);
    }

    fn term(&mut self, term: &Term) {
        self.u64(term.since.0);
        self.u64(term.until.0);
    }

    fn mail(&mut self, mail: &ToWorker) {
        match mail {
            ToWorker::Room { room, found } => {
                self.u8(1);
                self.text(room.as_str());
                self.opt(found.as_ref().ok(), |w, info| w.info(info));
            }
            ToWorker::Batch(batch) => {
                self.u8(2);
                self.text(batch.room.as_str());
                self.list(&batch.pieces, |w, piece| w.piece(piece));
                self.u32(batch.said);
            }
            ToWorker::Settings(info) => {
                self.u8(3);
                self.info(info);
            }
            ToWorker::Resync(info) => {
                self.u8(4);
                self.info(info);
            }
            ToWorker::Resume { conn, request, room, answer } => {
                self.u8(5);
                self.conn(*conn);
                self.u64(*request);
                self.text(room.as_str());
                match answer {
                    Ok(resumed) => {
                        self.u8(0);
                        self.resume(&resumed.answer);
                        self.page(&resumed.first);
                    }
                    Err(refused) => self.refused(refused),
                }
            }
            ToWorker::Page { conn, request, room, answer } => {
                self.u8(6);
                self.conn(*conn);
                self.u64(*request);
                self.text(room.as_str());
                match answer {
                    Ok(page) => {
                        self.u8(0);
                        self.page(page);
                    }
                    Err(refused) => self.refused(refused),
                }
            }
            ToWorker::Answer { conn, request, answer } => {
                self.u8(7);
                self.conn(*conn);
                self.u64(*request);
                self.answer(answer);
            }
            ToWorker::Fate { conn, room, client_msg_id, event_id } => {
                self.u8(40);
                self.conn(*conn);
                self.text(room.as_str());
                self.text(client_msg_id.as_str());
                self.opt(event_id.as_ref(), |w, id| w.u64(id.value()));
            }
            ToWorker::Refused { conn, room, client_msg_id } => {
                self.u8(45);
                self.conn(*conn);
                self.text(room.as_str());
                self.text(client_msg_id.as_str());
            }
            ToWorker::Http { conn, part } => {
                self.u8(8);
                self.conn(*conn);
                self.part(part);
            }
            ToWorker::Past { room, request, answer } => {
                self.u8(9);
                self.text(room.as_str());
                self.u64(*request);
                match answer {
                    Ok(past) => {
                        self.u8(0);
                        self.list(&past.pieces, |w, piece| w.piece(piece));
                        self.u64(past.after.value());
                    }
                    Err(refused) => self.refused(refused),
                }
            }
            ToWorker::Tally(rooms) => {
                self.u8(10);
                self.list(rooms, |w, (room, totals)| {
                    w.text(room.as_str());
                    w.totals(totals);
                });
            }
            ToWorker::LikesSettled { sender, number } => {
                self.u8(11);
                self.u64(*sender);
                self.u64(*number);
            }
            ToWorker::Site(list) => {
                self.u8(20);
                self.u64(list.as_of.0);
                self.list(&list.banners, |w, banner| {
                    w.u64(banner.id.value());
                    w.u64(banner.ts.0);
                    w.u64(banner.until.0);
                    w.bytes(&banner.json);
                });
                self.access(&list.access);
                self.list(&list.bans, |w, (user, until)| {
                    w.text(user.as_str());
                    w.opt(until.as_ref(), |w, until| w.u64(until.0));
                });
                self.list(&list.silent, |w, told| {
                    w.text(told.room.as_str());
                    w.text(told.match_id.as_str());
                    w.text(told.provider.as_str());
                    w.u64(told.since.0);
                    w.flag(told.ended);
                });
            }
            ToWorker::Banned(ban) => {
                self.u8(50);
                self.text(ban.room.as_str());
                self.text(ban.user.as_str());
                self.opt(ban.until.as_ref(), |w, until| w.u64(until.0));
            }
            ToWorker::Forget { room, upto } => {
                self.u8(51);
                self.text(room.as_str());
                self.u64(upto.value());
            }
            ToWorker::Renew { .. } | ToWorker::Renewed { .. } | ToWorker::EndLine { .. } => self.peer(mail),
            ToWorker::Away
            | ToWorker::Back
            | ToWorker::EndPoll { .. }
            | ToWorker::Port
            | ToWorker::Drain(_)
            | ToWorker::Stop => {
                unreachable!("what a process says to itself does not cross the link")
            }
        }
    }

    fn room(&mut self, room: &Room) {
        self.text(&room.title);
        self.u8(room.state as u8);
        self.list(&room.matches, |w, key| w.text(key.as_str()));
        for flag in [room.anonymous_view, room.anonymous_publish, room.listed] {
            self.flag(flag);
        }
        for n in [room.rate, room.user_rate, room.user_burst, room.like_rate] {
            self.u32(n);
        }
        self.opt(room.merge_ms.as_ref(), |w, ms| w.u32(*ms));
        self.opt(room.comment_age_ms.as_ref(), |w, ms| w.u32(*ms));
        for n in [room.resume_window_seconds, room.retention_days, room.slow_mode_seconds] {
            self.u32(n);
        }
        self.opt(room.slow_mode_until.as_ref(), |w, at| w.u64(at.0));
        self.u8(room.moderation_policy as u8);
        self.list(&room.pinned, |w, id| w.u64(id.value()));
        let rules = &room.sampling;
        self.u8(rules.when as u8);
        self.u32(rules.rate);
        self.u32(rules.viewers);
        self.u8(rules.preset as u8);
        self.opt(rules.cap.as_ref(), |w, cap| w.u32(*cap));
        for n in [rules.weights.base, rules.weights.per_reply, rules.weights.per_reaction] {
            self.u32(n);
        }
        self.list(&rules.weights.badges, |w, (badge, weight)| {
            w.text(badge);
            w.u32(*weight);
        });
        self.list(&room.banner_items, |w, item| w.text(item));
        let amounts: Vec<_> = room.banner_amounts.iter().collect();
        self.list(&amounts, |w, (currency, from)| {
            w.text(currency);
            w.u64(**from);
        });
        for n in [room.banner_rate, room.banner_seconds, room.combo_seconds, room.hold_seconds] {
            self.u32(n);
        }
        self.flag(room.hold_flagged);
        self.flag(room.unique_comment);
        self.flag(room.emote_only);
        self.opt(room.members_only.as_ref(), |w, badge| w.text(badge));
        self.list(&room.pin_ends.iter().collect::<Vec<_>>(), |w, (id, until)| {
            w.u64(id.value());
            w.u64(until.0);
        });
        self.list(&room.blackout_regions, |w, region| w.text(&region.to_string()));
        self.u32(room.settle_seconds);
        self.opt(room.settles_until.as_ref(), |w, at| w.u64(at.0));
        self.u64(room.version);
    }

    fn info(&mut self, info: &Arc<RoomInfo>) {
        self.text(info.room.as_str());
        self.room(&info.settings);
        self.u64(info.head.value());
        self.list(&info.epochs, |w, span| {
            w.u32(span.epoch.value());
            w.u64(span.last_seq.value());
        });
        self.u64(info.last_event.value());
        self.u64(info.pseq.0);
        self.totals(&info.likes);
        for json in [&info.config_json, &info.pinned_json] {
            self.text(json);
        }
        self.flag(info.wide);
    }

    fn piece(&mut self, piece: &Arc<Piece>) {
        self.u64(piece.id.value());
        self.one_of(&LANES, &piece.lane);
        self.u64(piece.ts.0);
        self.flag(piece.closes_window);
        self.opt(piece.pseq.as_ref(), |w, pseq| w.u64(pseq.0));
        self.one_of(&KINDS, &piece.kind);
        self.bytes(&piece.json);
        self.opt(piece.author.as_ref(), |w, (user, key)| {
            w.text(user.as_str());
            w.opt(key.as_ref(), |w, key| w.text(key.as_str()));
        });
        self.one_of(&AUDIENCES, &piece.audience);
        self.flag(piece.unallowed);
        self.opt(piece.retracts.as_ref(), |w, target| match target {
            RetractTarget::Event(id) => {
                w.u8(0);
                w.u64(id.value());
            }
            RetractTarget::User(user) => {
                w.u8(1);
                w.text(user.as_str());
            }
            RetractTarget::All => w.u8(2),
            RetractTarget::Since(user, from) => {
                w.u8(3);
                w.text(user.as_str());
                w.u64(from.0);
            }
        });
        self.opt(piece.won.as_ref(), |w, won| {
            w.u64(won.window.0);
            w.u32(won.of);
            w.u32(won.weight);
            w.flag(won.by_right);
            w.opt(won.addressee.as_ref(), |w, user| w.text(user.as_str()));
            w.opt(won.reply_to.as_ref(), |w, id| w.u64(id.value()));
        });
    }

    fn page(&mut self, page: &Page) {
        self.list(&page.pieces, |w, piece| w.piece(piece));
        self.u64(page.upto.value());
    }

    fn refused(&mut self, refused: &ReadRefused) {
        match refused {
            ReadRefused::NoRoom => self.u8(1),
            ReadRefused::Fault => self.u8(2),
            ReadRefused::Busy(delay) => {
                self.u8(3);
                self.duration(delay.retry_after);
                self.duration(delay.spread);
            }
            ReadRefused::Unknown => self.u8(4),
        }
    }

    fn resume(&mut self, answer: &resume::Answer) {
        match answer {
            resume::Answer::Live { from, pseq } => {
                self.u8(0);
                self.u64(from.value());
                self.u64(pseq.0);
            }
            resume::Answer::Resumed { from, pseq, comments_after, skipped, until } => {
                self.u8(1);
                self.u64(from.value());
                self.u64(pseq.0);
                self.u64(comments_after.value());
                self.opt(skipped.as_ref(), |w, s| {
                    w.u64(s.count);
                    w.u64(s.from.value());
                    w.u64(s.to.value());
                });
                self.u64(until.value());
            }
            resume::Answer::SnapshotRequired { reason, from, pseq } => {
                self.u8(2);
                self.one_of(&REASONS, reason);
                self.u64(from.value());
                self.u64(pseq.0);
            }
        }
    }

    fn answer(&mut self, answer: &Answer) {
        match answer {
            Answer::Published { event_id, partition, offset, duplicate } => {
                self.u8(0);
                self.u64(event_id.value());
                self.u16(partition.0);
                self.u64(offset.value());
                self.flag(*duplicate);
            }
            Answer::Raw { raw_id, partition, duplicate, fate } => {
                self.u8(20);
                self.u64(raw_id.value());
                self.u16(partition.0);
                self.flag(*duplicate);
                self.opt(fate.as_ref(), |w, fate| match fate {
                    Fate::Shown(event_id) => {
                        w.u8(1);
                        w.u64(event_id.value());
                    }
                    Fate::NotShown => w.u8(0),
                });
            }
            Answer::Score { accepted, event_id, revision, superseded, shown, room } => {
                self.u8(1);
                self.flag(*accepted);
                self.u64(event_id.value());
                self.u32(revision.0);
                self.flag(*superseded);
                self.flag(*shown);
                self.text(room.as_str());
            }
            Answer::Room { version, settings } => {
                self.u8(2);
                self.u64(*version);
                self.room(settings);
            }
            Answer::Done { event_id } => {
                self.u8(3);
                self.opt(event_id.as_ref(), |w, id| w.u64(id.value()));
            }
            // Asked by control, which is beside the shard.
            Answer::Gift { .. } | Answer::Banner { .. } | Answer::Match { .. } => {
                unreachable!("a gateway asks for publishes")
            }
            Answer::Held { held_id } => {
                self.u8(45);
                self.u64(held_id.value());
            }
            Answer::Pending { retry_after } => {
                self.u8(4);
                self.duration(*retry_after);
            }
            Answer::Reject(reject) => {
                self.u8(5);
                self.u8(reject.code as u8);
                self.text(&reject.message);
                self.opt(reject.retry_after.as_ref(), |w, d| w.duration(*d));
                self.list(&reject.fields, |w, (name, rule)| {
                    w.text(name);
                    w.text(rule);
                });
            }
        }
    }

    fn part(&mut self, part: &HttpPart) {
        match part {
            HttpPart::Whole { head, body } => {
                self.u8(0);
                self.head(head);
                self.bytes(body);
            }
            HttpPart::Head(head) => {
                self.u8(1);
                self.head(head);
            }
            HttpPart::Chunk(bytes) => {
                self.u8(2);
                self.bytes(bytes);
            }
            HttpPart::End => self.u8(3),
            HttpPart::Broken => self.u8(4),
        }
    }

    fn head(&mut self, head: &http::response::Parts) {
        self.u16(head.status.as_u16());
        self.headers(&head.headers);
    }
}

// ---- reading ---------------------------------------------------------------------------------------------------------

struct Reader<'a>(&'a [u8]);

type Read<T> = Result<T, Fault>;

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Read<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(n).ok_or(Fault::Short)?;
        self.0 = rest;
        Ok(front)
    }
    fn end(&self) -> Read<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Fault::Long) }
    }
    fn u8(&mut self) -> Read<u8> {
        Ok(self.take(1)?[0])
    }
    fn u16(&mut self) -> Read<u16> {
        Ok(u16::from_le_bytes(self.take(2)?.try_into().expect("two bytes")))
    }
    fn u32(&mut self) -> Read<u32> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes")))
    }
    fn u64(&mut self) -> Read<u64> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }
    fn flag(&mut self) -> Read<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Fault::Field),
        }
    }
    fn bytes(&mut self) -> Read<&'a [u8]> {
        let n = self.u32()? as usize;
        self.take(n)
    }
    fn text(&mut self) -> Read<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Fault::Field)
    }
    fn shared(&mut self) -> Read<Arc<str>> {
        Ok(self.text()?.into())
    }
    fn opt<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<Option<T>> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }
    /// `least`: the fewest bytes an item takes, so that a count is checked before anything is allocated for it.
    fn list<T>(&mut self, least: usize, mut read: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let n = self.u32()? as usize;
        if n > self.0.len() / least {
            return Err(Fault::Short);
        }
        (0..n).map(|_| read(self)).collect()
    }
    fn one_of<T: Copy>(&mut self, all: &[T]) -> Read<T> {
        all.get(usize::from(self.u8()?)).copied().ok_or(Fault::Field)
    }
    fn duration(&mut self) -> Read<Duration> {
        self.u64().map(Duration::from_micros)
    }
    fn worker(&mut self) -> Read<WorkerId> {
        Ok(WorkerId(u32::from(self.u16()?)))
    }
    fn conn(&mut self) -> Read<ConnKey> {
        Ok(ConnKey { worker: self.worker()?, slot: self.u32()?, generation: self.u32()? })
    }
    fn room(&mut self) -> Read<RoomId> {
        RoomId::parse(self.text()?).ok_or(Fault::Field)
    }
    fn user(&mut self) -> Read<UserId> {
        UserId::parse(self.text()?).ok_or(Fault::Field)
    }
    fn key(&mut self) -> Read<ClientMsgId> {
        ClientMsgId::parse(self.text()?).ok_or(Fault::Field)
    }
    /// Of a match, a provider or an event of one.
    fn name(&mut self) -> Read<Key> {
        Key::parse(self.text()?).ok_or(Fault::Field)
    }
    fn position(&mut self) -> Read<Position> {
        Position::new(self.u64()?).ok_or(Fault::Field)
    }
    fn id(&mut self) -> Read<EventId> {
        EventId::new(self.u64()?).ok_or(Fault::Field)
    }
    fn headers(&mut self) -> Read<HeaderMap> {
        let mut headers = HeaderMap::new();
        for (name, value) in self.list(8, |r| Ok((r.bytes()?, r.bytes()?)))? {
            let name = HeaderName::from_bytes(name).map_err(|_| Fault::Field)?;
            let value = HeaderValue::from_bytes(value).map_err(|_| Fault::Field)?;
            headers.try_append(name, value).map_err(|_| Fault::Field)?;
        }
        Ok(headers)
    }

    fn seen(&mut self) -> Read<Seen> {
        let (viewers, anonymous) = (self.u32()?, self.u32()?);
        let users = match self.u8()? {
            0 => People::from_marks(self.list(4, Reader::u32)?),
            1 => People::from_registers(self.bytes()?),
            _ => None,
        };
        Ok(Seen { viewers, anonymous, users: users.ok_or(Fault::Field)? })
    }

    fn totals(&mut self) -> Read<Totals> {
        let totals = self.list(12, |r| Ok((LikeKind::parse(r.text()?).ok_or(Fault::Field)?, r.u64()?)))?;
        Ok(totals.into())
    }

    fn publish(&mut self) -> Read<Publish> {
        Ok(Publish {
            room: self.room()?,
            author: Author {
                user: self.user()?,
                display: self.shared()?,
                badges: self.list(4, Reader::shared)?.into(),
                standing: self.one_of(&STANDINGS)?,
            },
            client_msg_id: self.key()?,
            text: self.shared()?,
            reply_to: self.opt(Reader::id)?,
        })
    }

    fn mail(&mut self) -> Read<ToWorker> {
        Ok(match self.u8()? {
            1 => {
                let room = self.room()?;
                let found = self.opt(Reader::info)?.ok_or(NoRoom);
                ToWorker::Room { room, found }
            }
            2 => {
                let room = self.room()?;
                ToWorker::Batch(Arc::new(Batch { room, pieces: self.pieces()?, said: self.u32()? }))
            }
            3 => ToWorker::Settings(self.info()?),
            4 => ToWorker::Resync(self.info()?),
            5 => ToWorker::Resume {
                conn: self.conn()?,
                request: self.u64()?,
                room: self.room()?,
                answer: match self.u8()? {
                    0 => Ok(Resumed { answer: self.resume()?, first: self.page()? }),
                    tag => Err(self.refused(tag)?),
                },
            },
            6 => ToWorker::Page {
                conn: self.conn()?,
                request: self.u64()?,
                room: self.room()?,
                answer: match self.u8()? {
                    0 => Ok(self.page()?),
                    tag => Err(self.refused(tag)?),
                },
            },
            7 => ToWorker::Answer { conn: self.conn()?, request: self.u64()?, answer: self.answer()? },
            40 => ToWorker::Fate {
                conn: self.conn()?,
                room: self.room()?,
                client_msg_id: self.key()?,
                event_id: self.opt(Reader::id)?,
            },
            45 => ToWorker::Refused { conn: self.conn()?, room: self.room()?, client_msg_id: self.key()? },
            8 => ToWorker::Http { conn: self.conn()?, part: self.part()? },
            9 => ToWorker::Past {
                room: self.room()?,
                request: self.u64()?,
                answer: match self.u8()? {
                    0 => Ok(Past { pieces: self.pieces()?, after: self.position()? }),
                    tag => Err(self.refused(tag)?),
                },
            },
            10 => ToWorker::Tally(Arc::new(self.list(8, |r| Ok((r.room()?, r.totals()?)))?)),
            11 => ToWorker::LikesSettled { sender: self.u64()?, number: self.u64()? },
            20 => ToWorker::Site(Arc::new(SiteList {
                as_of: Wall(self.u64()?),
                // Three numbers and a length.
                banners: self.list(28, |r| {
                    let (id, ts, until) = (r.id()?, Wall(r.u64()?), Wall(r.u64()?));
                    Ok(Arc::new(SiteBanner { id, ts, until, json: r.bytes()?.into() }))
                })?,
                access: Arc::new(self.access()?),
                // A length and a flag.
                bans: self.list(5, |r| Ok((r.user()?, r.opt(|r| r.u64().map(Wall))?)))?.into(),
                // Three lengths, a time and a flag.
                silent: {
                    let told = self.list(21, |r| {
                        let (room, match_id, provider) = (r.room()?, r.name()?, r.name()?);
                        Ok(Silence { room, match_id, provider, since: Wall(r.u64()?), ended: r.flag()? })
                    })?;
                    told.into()
                },
            })),
            50 => {
                let (room, user) = (self.room()?, self.user()?);
                ToWorker::Banned(Arc::new(RoomBan { room, user, until: self.opt(|r| r.u64().map(Wall))? }))
            }
            51 => ToWorker::Forget { room: self.room()?, upto: self.id()? },
            tag => self.peer(tag)?,
        })
    }

    fn access(&mut self) -> Read<Access> {
        // A kind, a length and two times.
        let revoked = self.list(21, |r| {
            let of = r.u8()?;
            let name = r.text()?;
            let what = match of {
                0 => Revoked::User(UserId::parse(name).ok_or(Fault::Field)?),
                1 if Revoked::is_name(name) => Revoked::Session(name.into()),
                2 if Revoked::is_name(name) => Revoked::Key(name.into()),
                _ => return Err(Fault::Field),
            };
            Ok((what, r.term()?))
        })?;
        Ok(Access { revoked: revoked.into_iter().collect(), outage: self.opt(Reader::term)? })
    }

    fn term(&mut self) -> Read<Term> {
        Ok(Term { since: Wall(self.u64()?), until: Wall(self.u64()?) })
    }

    fn settings(&mut self) -> Read<Room> {
        Ok(Room {
            title: self.shared()?,
            state: self.one_of(&RoomState::ALL)?.0,
            matches: self.list(4, |r| Key::parse(r.text()?).ok_or(Fault::Field))?,
            anonymous_view: self.flag()?,
            anonymous_publish: self.flag()?,
            listed: self.flag()?,
            rate: self.u32()?,
            user_rate: self.u32()?,
            user_burst: self.u32()?,
            like_rate: self.u32()?,
            merge_ms: self.opt(Reader::u32)?,
            comment_age_ms: self.opt(Reader::u32)?,
            resume_window_seconds: self.u32()?,
            retention_days: self.u32()?,
            slow_mode_seconds: self.u32()?,
            slow_mode_until: self.opt(|r| r.u64().map(Wall))?,
            moderation_policy: self.one_of(&Policy::ALL)?.0,
            pinned: self.list(8, Reader::id)?,
            sampling: Rules {
                when: self.one_of(&Sampling::ALL)?.0,
                rate: self.u32()?,
                viewers: self.u32()?,
                preset: self.one_of(&Preset::ALL)?.0,
                cap: self.opt(Reader::u32)?,
                weights: Weights {
                    base: self.u32()?,
                    per_reply: self.u32()?,
                    per_reaction: self.u32()?,
                    badges: self.list(8, |r| Ok((r.shared()?, r.u32()?)))?,
                },
            },
            banner_items: self.list(4, Reader::shared)?,
            banner_amounts: self.list(12, |r| Ok((r.shared()?, r.u64()?)))?.into_iter().collect(),
            banner_rate: self.u32()?,
            banner_seconds: self.u32()?,
            combo_seconds: self.u32()?,
            hold_seconds: self.u32()?,
            hold_flagged: self.flag()?,
            unique_comment: self.flag()?,
            emote_only: self.flag()?,
            members_only: self.opt(Reader::shared)?,
            pin_ends: self.list(16, |r| Ok((r.id()?, Wall(r.u64()?))))?.into_iter().collect(),
            // The length of a text and a country.
            blackout_regions: self.list(6, |r| Region::parse(r.text()?).ok_or(Fault::Field))?,
            settle_seconds: self.u32()?,
            settles_until: self.opt(|r| r.u64().map(Wall))?,
            version: self.u64()?,
        })
    }

    fn span(&mut self) -> Read<EpochSpan> {
        let epoch = Epoch::new(self.u32()?).ok_or(Fault::Field)?;
        Ok(EpochSpan { epoch, last_seq: Seq::new(self.u64()?).ok_or(Fault::Field)? })
    }

    fn info(&mut self) -> Read<Arc<RoomInfo>> {
        Ok(Arc::new(RoomInfo {
            room: self.room()?,
            settings: Arc::new(self.settings()?),
            head: self.position()?,
            epochs: self.list(12, Reader::span)?.into(),
            last_event: self.position()?,
            pseq: Pseq(self.u64()?),
            likes: self.totals()?,
            config_json: self.shared()?,
            pinned_json: self.shared()?,
            wide: self.flag()?,
        }))
    }

    fn pieces(&mut self) -> Read<Vec<Arc<Piece>>> {
        // Id, lane, time, window, pseq, kind, length, author, audience, unallowed, retracts, won.
        self.list(8 + 1 + 8 + 1 + 1 + 1 + 4 + 1 + 1 + 1 + 1 + 1, Reader::piece)
    }

    fn piece(&mut self) -> Read<Arc<Piece>> {
        Ok(Arc::new(Piece {
            id: self.id()?,
            lane: self.one_of(&LANES)?,
            ts: Wall(self.u64()?),
            closes_window: self.flag()?,
            pseq: self.opt(|r| r.u64().map(Pseq))?,
            kind: self.one_of(&KINDS)?,
            json: self.bytes()?.into(),
            author: self.opt(|r| Ok((r.user()?, r.opt(Reader::key)?)))?,
            audience: self.one_of(&AUDIENCES)?,
            unallowed: self.flag()?,
            retracts: self.opt(|r| {
                Ok(match r.u8()? {
                    0 => RetractTarget::Event(r.id()?),
                    1 => RetractTarget::User(r.user()?),
                    2 => RetractTarget::All,
                    3 => RetractTarget::Since(r.user()?, Wall(r.u64()?)),
                    _ => return Err(Fault::Field),
                })
            })?,
            won: self.opt(|r| {
                Ok(Won {
                    window: WindowNumber(r.u64()?),
                    of: r.u32()?,
                    weight: r.u32()?,
                    by_right: r.flag()?,
                    addressee: r.opt(Reader::user)?,
                    reply_to: r.opt(Reader::id)?,
                })
            })?,
        }))
    }

    fn page(&mut self) -> Read<Page> {
        Ok(Page { pieces: self.pieces()?, upto: self.position()? })
    }

    fn refused(&mut self, tag: u8) -> Read<ReadRefused> {
        match tag {
            1 => Ok(ReadRefused::NoRoom),
            2 => Ok(ReadRefused::Fault),
            3 => Ok(ReadRefused::Busy(Delay { retry_after: self.duration()?, spread: self.duration()? })),
            4 => Ok(ReadRefused::Unknown),
            _ => Err(Fault::Field),
        }
    }

    fn resume(&mut self) -> Read<resume::Answer> {
        Ok(match self.u8()? {
            0 => resume::Answer::Live { from: self.position()?, pseq: Pseq(self.u64()?) },
            1 => resume::Answer::Resumed {
                from: self.position()?,
                pseq: Pseq(self.u64()?),
                comments_after: self.position()?,
                skipped: self.opt(|r| Ok(Skipped { count: r.u64()?, from: r.id()?, to: r.id()? }))?,
                until: self.position()?,
            },
            2 => resume::Answer::SnapshotRequired {
                reason: self.one_of(&REASONS)?,
                from: self.position()?,
                pseq: Pseq(self.u64()?),
            },
            _ => return Err(Fault::Field),
        })
    }

    fn answer(&mut self) -> Read<Answer> {
        Ok(match self.u8()? {
            0 => Answer::Published {
                event_id: self.id()?,
                partition: Partition(self.u16()?),
                offset: Seq::new(self.u64()?).ok_or(Fault::Field)?,
                duplicate: self.flag()?,
            },
            20 => Answer::Raw {
                raw_id: self.id()?,
                partition: Partition(self.u16()?),
                duplicate: self.flag()?,
                fate: self.opt(|r| {
                    Ok(match r.u8()? {
                        0 => Fate::NotShown,
                        1 => Fate::Shown(r.id()?),
                        _ => return Err(Fault::Field),
                    })
                })?,
            },
            1 => Answer::Score {
                accepted: self.flag()?,
                event_id: self.id()?,
                revision: Revision(self.u32()?),
                superseded: self.flag()?,
                shown: self.flag()?,
                room: self.room()?,
            },
            2 => Answer::Room { version: self.u64()?, settings: Arc::new(self.settings()?) },
            3 => Answer::Done { event_id: self.opt(Reader::id)? },
            45 => Answer::Held { held_id: self.id()? },
            4 => Answer::Pending { retry_after: self.duration()? },
            5 => Answer::Reject(Reject {
                code: self.one_of(&Code::ALL)?.0,
                message: Cow::Owned(self.text()?.to_owned()),
                retry_after: self.opt(Reader::duration)?,
                fields: self.list(8, |r| Ok((r.text()?.to_owned(), r.text()?.to_owned())))?,
            }),
            _ => return Err(Fault::Field),
        })
    }

    fn part(&mut self) -> Read<HttpPart> {
        Ok(match self.u8()? {
            0 => HttpPart::Whole { head: self.head()?, body: Bytes::copy_from_slice(self.bytes()?) },
            1 => HttpPart::Head(self.head()?),
            2 => HttpPart::Chunk(Bytes::copy_from_slice(self.bytes()?)),
            3 => HttpPart::End,
            4 => HttpPart::Broken,
            _ => return Err(Fault::Field),
        })
    }

    fn head(&mut self) -> Read<http::response::Parts> {
        let status = http::StatusCode::from_u16(self.u16()?).map_err(|_| Fault::Field)?;
        let (mut head, ()) = http::Response::new(()).into_parts();
        head.status = status;
        head.headers = self.headers()?;
        Ok(head)
    }
}

mod operators;
mod peers;
#[cfg(test)]
mod tests;
