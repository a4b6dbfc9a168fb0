//! The bytes of checkpoints: where a log stood, and one room as it was there.
//!
//! A checkpoint can be made again from the log, so a damaged or newer one is a fault to be told and passed over, never a
//! loss. Frame: `GSCP`, version, kind, fields in the strict Protobuf form of records, CRC-32 (IEEE) of all before it.
//! Records inside carry an all-zero salt: their text stands beside it anyway, and equal rooms get equal bytes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use grandstand_core::access::{Access, Term};
use grandstand_core::banners::{Site, Standing};
use grandstand_core::combos::{self, Combo, Combos};
use grandstand_core::feed::Feed;
use grandstand_core::ids::{Epoch, EpochSpan, EventId, Position, Pseq, Revision, Seq};
use grandstand_core::likes::Counted;
use grandstand_core::names::{Key, RoomId, UserId};
use grandstand_core::owner::checkpoint::{LogCheckpoint, RoomCheckpoint};
use grandstand_core::owner::view::{Gifts, Retracted, RoomView};
use grandstand_core::record::{Ban, Body, Record};
use grandstand_core::reports::{Reported, Reports};
use grandstand_core::revision::{Ledger, Line, Row, Seen};
use grandstand_core::sampler::pick::WindowNumber;
use grandstand_core::time::Wall;

use crate::proto::{Broken, Decoder, Encoder};
use crate::record::{self, nested, repeated};

/// Grows when a field changes its meaning; an older server passes over a newer checkpoint and reads the log.
pub const VERSION: u8 = 1;
/// 65 536 retracted events and twice as many gift keys of 128 bytes are 24 MiB; matches and comments come on top.
pub const CHECKPOINT_BYTES_MAX: usize = 64 << 20;

const MAGIC: &[u8; 4] = b"GSCP";
const KIND_LOG: u8 = 1;
const KIND_ROOM: u8 = 2;

/// Why bytes are not a checkpoint of this kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Not a checkpoint, cut short, or damaged.
    Damaged,
    /// Written by another version.
    Version(u8),
    /// The checksum holds and the content does not; names what was being read.
    Malformed(&'static str),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Damaged => f.write_str("the checkpoint is damaged"),
            Fault::Version(v) => write!(f, "the checkpoint has version {v}, this server reads {VERSION}"),
            Fault::Malformed(what) => write!(f, "the checkpoint is malformed at {what}"),
        }
    }
}

impl std::error::Error for Fault {}

impl From<Broken> for Fault {
    fn from(what: Broken) -> Fault {
        Fault::Malformed(what)
    }
}

/// Appends a log's checkpoint.
pub fn encode_log(log: &LogCheckpoint, out: &mut Vec<u8>) {
    seal(KIND_LOG, out, |e| {
        e.number(1, log.position.value());
        e.number(2, log.ts.0);
        for span in &log.epochs {
            nested(e, 3, |e| {
                e.number(1, u64::from(span.epoch.value()));
                e.number(2, span.last_seq.value());
            });
        }
        for (id, standing) in &log.site.active {
            nested(e, 8, |e| {
                e.number(1, id.value());
                nested(e, 2, |e| record::encode_banner(&standing.banner, e));
                e.number(3, standing.since.0);
            });
        }
        for (at, room) in &log.site.recent {
            nested(e, 9, |e| {
                e.number(1, at.0);
                e.text(2, room.as_str());
            });
        }
        for (sender, counted) in &log.senders {
            nested(e, 30, |e| {
                e.number(1, *sender);
                e.number(2, counted.number);
                e.number(3, counted.at.0);
            });
        }
        for ban in log.site.bans.values() {
            nested(e, 50, |e| record::encode_ban(ban, e));
        }
        e.number(52, u64::from(log.site.raised));
        for (what, term) in &log.access.revoked {
            nested(e, 60, |e| {
                record::encode_revoked(what, e);
                e.number(4, term.since.0);
                e.number(5, term.until.0);
            });
        }
        if let Some(outage) = &log.access.outage {
            nested(e, 61, |e| {
                e.number(1, outage.since.0);
                e.number(2, outage.until.0);
            });
        }
    });
}

/// Errors: [`Fault`]; recovery then reads the log from an older checkpoint or its start.
pub fn decode_log(bytes: &[u8]) -> Result<LogCheckpoint, Fault> {
    let mut d = open(KIND_LOG, bytes)?;
    let position = position(d.number(1)?)?;
    let ts = Wall(d.number(2)?);
    let epochs = repeated(&mut d, 3, |d| {
        Ok(EpochSpan {
            epoch: Epoch::new(d.number32(1)?).ok_or("epoch")?,
            last_seq: Seq::new(d.number(2)?).ok_or("last_seq")?,
        })
    })?;
    let active = pairs(&mut d, 8, |d| {
        let id = event_id(d.number(1)?)?;
        let mut inner = Decoder::new(d.bytes_some(2)?.ok_or("a banner")?);
        let banner = record::decode_banner(&mut inner)?;
        inner.end()?;
        Ok((id, Standing { since: Wall(d.number(3)?), banner }))
    })?;
    let recent = repeated(&mut d, 9, |d| Ok((Wall(d.number(1)?), RoomId::parse(d.text(2)?).ok_or("room")?)))?;
    let senders = pairs(&mut d, 30, |d| {
        let sender = d.number(1)?;
        Ok((sender, Counted { number: d.number(2)?, at: Wall(d.number(3)?) }))
    })?;
    let bans = pairs(&mut d, 50, named_ban)?;
    let raised = d.number32(52)?;
    let revoked = pairs(&mut d, 60, |d| {
        let what = record::decode_revoked(d)?;
        Ok((what, Term { since: Wall(d.number(4)?), until: Wall(d.number(5)?) }))
    })?;
    let outage = repeated(&mut d, 61, |d| Ok(Term { since: Wall(d.number(1)?), until: Wall(d.number(2)?) }))?;
    if outage.len() > 1 {
        return Err(Fault::Malformed("outage"));
    }
    d.end()?;
    let access = Access { revoked, outage: outage.first().copied() };
    let site = Site { active, recent: recent.into(), bans: Arc::new(bans), raised };
    let senders = senders.into_iter().collect();
    Ok(LogCheckpoint { position, epochs, ts, senders, site, access })
}

/// Appends a room's checkpoint.
pub fn encode_room(room: &RoomCheckpoint, out: &mut Vec<u8>) {
    let view = &room.view;
    seal(KIND_ROOM, out, |e| {
        e.text(1, view.room.as_str());
        nested(e, 2, |e| record::encode_room(&view.settings, e));
        e.number(3, view.as_of.value());
        e.number(4, view.last_event.value());
        e.number(5, view.pseq.0);
        e.number(6, u64::from(view.policy_version));
        e.number(7, view.accepted);
        for comment in &view.recent {
            e.bytes_some(8, &inner_record(comment));
        }
        for comment in &view.pinned {
            e.bytes_some(9, &inner_record(comment));
        }
        for (key, id) in &view.bound {
            nested(e, 10, |e| {
                e.text(1, key.as_str());
                e.number(2, id.value());
            });
        }
        for (key, ledger) in &view.scores {
            nested(e, 11, |e| {
                e.text(1, key.as_str());
                for ((provider, event), line) in &ledger.lines {
                    nested(e, 2, |e| encode_line(provider, event, line, e));
                }
                for (key, row) in &ledger.rows {
                    nested(e, 3, |e| encode_row(key, row, ledger, e));
                }
                if let Some(feed) = &ledger.feed {
                    nested(e, 4, |e| {
                        e.text(1, feed.primary.as_str());
                        e.text(2, feed.stand_by.as_ref().map_or("", Key::as_str));
                        e.number(3, feed.since.value());
                    });
                }
                // Servers that showed whatever was said wrote no rows.
                e.bool(5, ledger.rows.is_empty() && !ledger.lines.is_empty());
            });
        }
        for ban in view.bans.values() {
            nested(e, 12, |e| record::encode_ban(ban, e));
        }
        for (key, (id, digest)) in &view.gifts.by_key {
            nested(e, 13, |e| {
                e.text(1, key.as_str());
                e.number(2, id.value());
                e.number(3, *digest);
                e.number(4, view.gifts.by_id.get(id).map_or(0, |(_, ts)| ts.0));
            });
        }
        for (target, by) in &view.retracted.events {
            nested(e, 14, |e| {
                e.number(1, target.value());
                e.number(2, by.value());
            });
        }
        for (user, upto) in &view.retracted.users {
            nested(e, 15, |e| {
                e.text(1, user.as_str());
                e.number(2, upto.value());
            });
        }
        e.number(16, view.retracted.all.map_or(0, EventId::value));
        e.bool(17, view.wide);
        e.number(18, view.window.0);
        record::encode_totals(30, &view.likes, e);
        for (key, combo) in view.combos.open() {
            nested(e, 35, |e| encode_combo(key, combo, e));
        }
        for held in view.held.values() {
            e.bytes_some(40, &inner_record(held));
        }
        for (held, shown) in view.approved.iter() {
            nested(e, 41, |e| {
                e.number(1, held.value());
                e.number(2, shown.value());
            });
        }
        for (user, purges) in &view.retracted.since {
            for (from, upto) in purges {
                nested(e, 50, |e| {
                    e.text(1, user.as_str());
                    e.number(2, from.0);
                    e.number(3, upto.value());
                });
            }
        }
        for (id, reported) in &view.reports.events {
            nested(e, 51, |e| encode_reported(*id, reported, e));
        }
    });
}

/// Errors: [`Fault`]; recovery then reads the room from the log.
pub fn decode_room(bytes: &[u8]) -> Result<RoomCheckpoint, Fault> {
    let mut d = open(KIND_ROOM, bytes)?;
    let room = RoomId::parse(d.text(1)?).ok_or("room")?;
    let mut settings = Decoder::new(d.bytes_some(2)?.ok_or("settings")?);
    let decoded = record::decode_room(&mut settings)?;
    settings.end()?;
    let mut view = RoomView::new(room, Arc::new(decoded));
    view.as_of = position(d.number(3)?)?;
    view.last_event = position(d.number(4)?)?;
    view.pseq = Pseq(d.number(5)?);
    view.policy_version = d.number32(6)?;
    view.accepted = d.number(7)?;
    let mut recent = VecDeque::new();
    while let Some(bytes) = d.bytes_some(8)? {
        recent.push_back(outer_record(bytes)?);
    }
    view.recent = recent;
    while let Some(bytes) = d.bytes_some(9)? {
        view.pinned.push(outer_record(bytes)?);
    }
    view.bound = pairs(&mut d, 10, |d| Ok((key(d.text(1)?)?, event_id(d.number(2)?)?)))?;
    view.scores = pairs(&mut d, 11, |d| {
        let match_id = key(d.text(1)?)?;
        Ok((match_id, Arc::new(decode_ledger(d)?)))
    })?;
    // What is empty stays the one that all rooms share.
    let bans: BTreeMap<_, _> = pairs(&mut d, 12, named_ban)?;
    if !bans.is_empty() {
        view.bans = Arc::new(bans);
    }
    let logged =
        pairs(&mut d, 13, |d| Ok((key(d.text(1)?)?, (event_id(d.number(2)?)?, d.number(3)?, Wall(d.number(4)?)))))?;
    if !logged.is_empty() {
        let by_id = logged.iter().map(|(key, (id, _, ts))| (*id, (key.clone(), *ts))).collect();
        let by_key = logged.into_iter().map(|(key, (id, digest, _))| (key, (id, digest))).collect();
        view.gifts = Arc::new(Gifts { by_key, by_id });
    }
    let mut retracted = Retracted {
        events: pairs(&mut d, 14, |d| Ok((event_id(d.number(1)?)?, event_id(d.number(2)?)?)))?,
        users: pairs(&mut d, 15, |d| Ok((user(d.text(1)?)?, event_id(d.number(2)?)?)))?,
        all: d.number_some(16)?.map(event_id).transpose()?,
        since: BTreeMap::new(),
    };
    view.wide = d.bool(17)?;
    view.window = WindowNumber(d.number(18)?);
    view.likes = record::decode_totals(30, &mut d)?;
    let combos = pairs(&mut d, 35, decode_combo)?;
    if !combos.is_empty() {
        view.combos = Arc::new(Combos::of(combos));
    }
    let mut held = BTreeMap::new();
    while let Some(bytes) = d.bytes_some(40)? {
        let record = outer_record(bytes)?;
        if !matches!(record.body, Body::Held(_)) || record.user.is_none() {
            return Err(Fault::Malformed("a held comment"));
        }
        if held.last_key_value().is_some_and(|(last, _)| *last >= record.event_id()) {
            return Err(Fault::Malformed("the order of held comments"));
        }
        held.insert(record.event_id(), record);
    }
    if !held.is_empty() {
        view.held = Arc::new(held);
    }
    let approved: BTreeMap<_, _> = pairs(&mut d, 41, |d| Ok((event_id(d.number(1)?)?, event_id(d.number(2)?)?)))?;
    if !approved.is_empty() {
        view.approved = Arc::new(approved);
    }
    for (user, from, upto) in
        repeated(&mut d, 50, |d| Ok((user(d.text(1)?)?, Wall(d.number(2)?), event_id(d.number(3)?)?)))?
    {
        retracted.since.entry(user).or_default().push((from, upto));
    }
    if retracted != Retracted::default() {
        view.retracted = Arc::new(retracted);
    }
    let reports = Reports { events: pairs(&mut d, 51, decode_reported)? };
    if !reports.events.is_empty() {
        view.reports = Arc::new(reports);
    }
    d.end()?;
    Ok(RoomCheckpoint { view })
}

fn encode_reported(id: EventId, reported: &Reported, e: &mut Encoder<'_>) {
    e.number(1, id.value());
    e.number(2, reported.first.0);
    e.number(3, reported.last.0);
    for user in &reported.users {
        e.bytes_some(4, user.as_str().as_bytes());
    }
    for (reason, n) in &reported.reasons {
        nested(e, 5, |e| {
            e.text(1, reason);
            e.number(2, u64::from(*n));
        });
    }
}

fn decode_reported(d: &mut Decoder<'_>) -> Result<(EventId, Reported), Broken> {
    let id = event_id(d.number(1)?)?;
    let (first, last) = (Wall(d.number(2)?), Wall(d.number(3)?));
    let mut users = BTreeSet::new();
    while let Some(name) = d.text_some(4)? {
        users.insert(user(name)?);
    }
    let reasons = pairs(d, 5, |d| Ok((d.text(1)?.into(), d.number32(2)?)))?;
    Ok((id, Reported { users, reasons, first, last }))
}

fn named_ban(d: &mut Decoder<'_>) -> Result<(UserId, Ban), Broken> {
    record::decode_ban(d).map(|ban| (ban.user.clone(), ban))
}

fn encode_combo(key: &combos::Key, combo: &Combo, e: &mut Encoder<'_>) {
    e.text(1, key.0.as_str());
    e.text(2, &key.1);
    e.text(3, &key.2);
    e.number(4, combo.first.value());
    e.text(5, &combo.display);
    e.number(6, combo.last.0);
    e.number(7, combo.told.0);
    e.number(8, u64::from(combo.gifts));
    e.number(9, combo.count);
    e.number(10, combo.amount_micros);
    e.number(11, u64::from(combo.told_gifts));
}

fn decode_combo(d: &mut Decoder<'_>) -> Result<(combos::Key, Combo), Broken> {
    let key = (user(d.text(1)?)?, d.text(2)?.into(), d.text(3)?.into());
    let combo = Combo {
        first: event_id(d.number(4)?)?,
        display: d.text(5)?.into(),
        last: Wall(d.number(6)?),
        told: Wall(d.number(7)?),
        gifts: d.number32(8)?,
        count: d.number(9)?,
        amount_micros: d.number(10)?,
        told_gifts: d.number32(11)?,
    };
    Ok((key, combo))
}

fn encode_line(provider: &Key, event: &Key, line: &Line, e: &mut Encoder<'_>) {
    e.text(1, provider.as_str());
    e.text(2, event.as_str());
    e.number(3, line.first.value());
    for seen in &line.seen {
        nested(e, 4, |e| {
            e.number(1, u64::from(seen.revision.0));
            e.bytes_some(2, &seen.digest);
            e.number(3, seen.event_id.value());
            e.bool(4, seen.superseded);
        });
    }
    e.bytes_some(5, &inner_record(&line.top));
    e.text(6, line.row.as_ref().map_or("", Key::as_str));
}

fn encode_row(name: &Key, row: &Row, ledger: &Ledger, e: &mut Encoder<'_>) {
    e.text(1, name.as_str());
    e.text(2, row.of.0.as_str());
    e.text(3, row.of.1.as_str());
    e.number(4, row.first.value());
    e.bool(5, row.numbered);
    // Most rows show what their line said last.
    if !ledger.lines.get(&row.of).is_some_and(|line| line.top == row.top) {
        e.bytes_some(6, &inner_record(&row.top));
    }
}

fn decode_ledger(d: &mut Decoder<'_>) -> Result<Ledger, Broken> {
    let lines: BTreeMap<(Key, Key), Line> = pairs(d, 2, decode_line)?;
    let mut rows: BTreeMap<Key, Row> = pairs(d, 3, |d| {
        let name = key(d.text(1)?)?;
        let of = (key(d.text(2)?)?, key(d.text(3)?)?);
        let (first, numbered) = (event_id(d.number(4)?)?, d.bool(5)?);
        let top = match d.bytes_some(6)? {
            Some(bytes) => score_record(bytes)?,
            None => lines.get(&of).ok_or("a row without its line")?.top.clone(),
        };
        Ok((name, Row { first, top, of, numbered }))
    })?;
    let feeds = repeated(d, 4, |d| {
        let primary = key(d.text(1)?)?;
        let stand_by = record::name(d.text(2)?, Key::parse, "a key")?;
        Ok(Feed { primary, stand_by, since: event_id(d.number(3)?)? })
    })?;
    if feeds.len() > 1 {
        return Err("a feed");
    }
    let hidden = d.bool(5)?;
    if rows.is_empty() && !hidden {
        for (of, line) in &lines {
            let (first, top, of) = (line.first, line.top.clone(), of.clone());
            rows.entry(of.1.clone()).or_insert(Row { first, top, of, numbered: false });
        }
    }
    Ok(Ledger { lines, rows, feed: feeds.into_iter().next() })
}

fn score_record(bytes: &[u8]) -> Result<Arc<Record>, Broken> {
    outer_record(bytes).and_then(|record| match record.body {
        Body::Score(_) => Ok(record),
        _ => Err("a score event"),
    })
}

fn decode_line(d: &mut Decoder<'_>) -> Result<((Key, Key), Line), Broken> {
    let name = (key(d.text(1)?)?, key(d.text(2)?)?);
    let first = event_id(d.number(3)?)?;
    let seen = repeated(d, 4, |d| {
        Ok(Seen {
            revision: Revision(d.number32(1)?),
            digest: d.bytes_some(2)?.and_then(|b| b.try_into().ok()).ok_or("digest")?,
            event_id: event_id(d.number(3)?)?,
            superseded: d.bool(4)?,
        })
    })?;
    let top = score_record(d.bytes_some(5)?.ok_or("top")?)?;
    let row = record::name(d.text(6)?, Key::parse, "a key")?;
    Ok((name, Line { first, seen, top, row }))
}

fn inner_record(record: &Record) -> Vec<u8> {
    let mut out = Vec::new();
    record::encode_salted(record, &[0; 16], &mut out);
    out
}

fn outer_record(bytes: &[u8]) -> Result<Arc<Record>, Broken> {
    record::decode(bytes).map(Arc::new).map_err(|_| "a record")
}

fn key(text: &str) -> Result<Key, Broken> {
    Key::parse(text).ok_or("a key")
}

fn user(text: &str) -> Result<UserId, Broken> {
    UserId::parse(text).ok_or("a user")
}

fn event_id(id: u64) -> Result<EventId, Broken> {
    EventId::new(id).ok_or("an event id")
}

fn position(at: u64) -> Result<Position, Broken> {
    Position::new(at).ok_or("a position")
}

fn pairs<K: Ord, V>(
    d: &mut Decoder<'_>,
    field: u32,
    read: impl FnMut(&mut Decoder<'_>) -> Result<(K, V), Broken>,
) -> Result<BTreeMap<K, V>, Broken> {
    let items = repeated(d, field, read)?;
    let rising = items.windows(2).all(|pair| pair[0].0 < pair[1].0);
    if rising { Ok(items.into_iter().collect()) } else { Err("the order of keys") }
}

fn seal(kind: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Encoder<'_>)) {
    let start = out.len();
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&[VERSION, kind]);
    write(&mut Encoder(out));
    let checksum = crc32fast::hash(&out[start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

fn open(kind: u8, bytes: &[u8]) -> Result<Decoder<'_>, Fault> {
    let (framed, checksum) = bytes.split_last_chunk::<4>().ok_or(Fault::Damaged)?;
    let (head, body) = framed.split_first_chunk::<6>().ok_or(Fault::Damaged)?;
    if bytes.len() > CHECKPOINT_BYTES_MAX || &head[..4] != MAGIC {
        return Err(Fault::Damaged);
    }
    if crc32fast::hash(framed) != u32::from_le_bytes(*checksum) {
        return Err(Fault::Damaged);
    }
    if head[4] != VERSION {
        return Err(Fault::Version(head[4]));
    }
    if head[5] != kind {
        return Err(Fault::Malformed("kind"));
    }
    Ok(Decoder::new(body))
}
