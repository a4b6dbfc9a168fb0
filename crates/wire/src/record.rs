//! The bytes of one log record. Format: crates/wire/proto/record.proto.
//!
//! A record is a sealed envelope with a window: the header can be read for ever, the content can be burnt without breaking
//! the seal. The seal is a CRC-32 over the header, and the header holds SHA-256 of salt and content; so a reader knows a
//! damaged content from an erased one, and nobody can guess an erased text from its hash, because the salt went with it.
//!
//! Whose a record is stands in the header. When that user is erased, a hash of user and key takes their place, made with a salt
//! of its own that goes too. That salt is made of the content's, so a content may go first and leave no way back to itself: the
//! daughter tells nothing of the mother.
//!
//! The checksum is the IEEE CRC-32 (polynomial 0x04C11DB7, as in Ethernet and zip), not the Castagnoli one: it finds
//! damage, it does not stop a forger, and both find every burst of up to 32 bits.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use grandstand_core::access::Revoked;
use grandstand_core::ids::{Epoch, EventId, Pseq, Revision, Seq};
use grandstand_core::likes;
use grandstand_core::names::{ClientMsgId, Key, LikeKind, RoomId, UserId};
use grandstand_core::record::{
    Audience, Audit, Ban, Banner, BannerGift, Blocked, Body, ComboUpdate, Comment, Config, Crowd, End, Gift, Held,
    HeldEnd, Lane, MatchFeed, Policy, Record, Retract, RetractTarget, Room, RoomState, Score, ScoreKind, ScoreState,
    Shown, Source, Tally, Verdict, Won,
};
use grandstand_core::regions::Region;
use grandstand_core::reports::Report;
use grandstand_core::sampler::pick::WindowNumber;
use grandstand_core::sampler::switch::Sampling;
use grandstand_core::sampler::{Preset, Rules, Weights};
use grandstand_core::time::Wall;
use grandstand_core::{banners, combos, moderation, rooms, routing};

use crate::proto::{Broken, Decoder, Encoder};

/// No record is longer: the largest body is a score's `data` or a room's lists, each bounded at the door far below this.
pub const RECORD_BYTES_MAX: usize = 256 << 10;

pub type Salt = [u8; 16];

/// Why bytes are not a record. The log is damaged at this place, or a newer server wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Above [`RECORD_BYTES_MAX`].
    TooLong,
    /// Not the format; names what was being read.
    Malformed(&'static str),
    /// The header is not what was written.
    Checksum,
    /// The content is not what was written.
    BodyHash,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::TooLong => f.write_str("the record is too long"),
            Fault::Malformed(what) => write!(f, "the record is malformed at {what}"),
            Fault::Checksum => f.write_str("the record's header is damaged"),
            Fault::BodyHash => f.write_str("the record's content is damaged"),
        }
    }
}

impl std::error::Error for Fault {}

impl From<Broken> for Fault {
    fn from(what: Broken) -> Fault {
        Fault::Malformed(what)
    }
}

/// Appends the record with a fresh salt. Two encodings of one record differ in salt and hash alone.
pub fn encode(record: &Record, out: &mut Vec<u8>) {
    encode_salted(record, &fresh_salt(), out);
}

/// Appends the record with this salt. The salt must not be guessable, or an erased text could be.
pub fn encode_salted(record: &Record, salt: &Salt, out: &mut Vec<u8>) {
    out.reserve(384);
    let start = out.len();
    let mut e = Encoder(out);
    e.number(1, u64::from(record.partition().0));
    e.number(2, u64::from(record.epoch.value()));
    e.number(3, record.seq.value());
    e.text(4, record.room.as_ref().map_or("", RoomId::as_str));
    e.number(5, lane_number(record.lane()));
    e.number(6, record.ts.0);
    e.text(7, &record.region);
    e.text(8, record.user.as_ref().map_or("", UserId::as_str));
    e.text(9, record.client_msg_id.as_ref().map_or("", ClientMsgId::as_str));
    e.number(10, record.pseq.map_or(0, |p| p.0));
    if let Body::Score(score) = &record.body {
        e.number(11, u64::from(score.revision.0));
    }
    e.number(12, record.verdict as u64);
    e.number(13, u64::from(record.policy_version));
    e.number(14, record.audience as u64);
    if let Some(source) = &record.source {
        e.text(15, &source.log);
        e.number(16, source.id.value());
    }
    let kind = kind_of(&record.body);
    e.number(17, kind);
    if matches!(kind, KIND_EPOCH_START | KIND_ERASED) {
        let checksum = crc32fast::hash(&out[start..]);
        Encoder(out).fixed32(21, checksum);
        return;
    }
    with_scratch(|body| {
        encode_body(&record.body, &mut Encoder(body));
        e.bytes_some(18, &hash_of(salt, body));
        let header_end = e.0.len();
        e.bytes_some(19, salt);
        e.bytes_some(20, body);
        let checksum = crc32fast::hash(&e.0[start..header_end]);
        e.fixed32(21, checksum);
    });
    assert!(out.len() - start <= RECORD_BYTES_MAX, "bodies are bounded where they enter");
}

/// Reads a whole record.
///
/// Errors: any byte that is not as the writer made it. A content that was erased is not an error: [`Body::Erased`].
pub fn decode(bytes: &[u8]) -> Result<Record, Fault> {
    let parts = Parts::read(bytes)?;
    let mut d = Decoder::new(parts.header);
    let partition = d.number(1)?;
    let epoch = Epoch::new(d.number32(2)?).ok_or("epoch")?;
    let seq = Seq::new(d.number(3)?).ok_or("seq")?;
    let room = name(d.text(4)?, RoomId::parse, "room")?;
    let lane = d.number(5)?;
    let ts = Wall(d.number(6)?);
    let region = shared_region(d.text(7)?);
    let user = name(d.text(8)?, UserId::parse, "user")?;
    let client_msg_id = name(d.text(9)?, ClientMsgId::parse, "client_msg_id")?;
    let pseq = Some(d.number(10)?).filter(|n| *n > 0).map(Pseq);
    let revision = d.number32(11)?;
    let verdict = match d.number(12)? {
        0 => Verdict::Unjudged,
        1 => Verdict::Allow,
        2 => Verdict::Flag,
        3 => Verdict::Block,
        _ => return Err(Fault::Malformed("verdict")),
    };
    let policy_version = d.number32(13)?;
    let audience = match d.number(14)? {
        0 => Audience::Everyone,
        1 => Audience::Author,
        2 => Audience::Nobody,
        _ => return Err(Fault::Malformed("audience")),
    };
    let source = match d.text_some(15)? {
        Some(log) => Some(Source { log: log.into(), id: EventId::new(d.number(16)?).ok_or("source")? }),
        None => None,
    };
    let kind = d.number(17)?;
    let body = match parts.content {
        _ if kind == KIND_EPOCH_START => Body::EpochStart,
        None if (KIND_COMMENT..=KIND_LAST).contains(&kind) => Body::Erased,
        Some((_, content)) => decode_body(kind, revision, content)?,
        None => return Err(Fault::Malformed("kind")),
    };
    let record = Record {
        epoch,
        seq,
        room,
        ts,
        region,
        user,
        client_msg_id,
        pseq,
        verdict,
        policy_version,
        audience,
        source,
        body,
    };
    // What is written twice must agree; the lane of an erased record is all that is left of its kind of body.
    if u64::from(record.partition().0) != partition {
        return Err(Fault::Malformed("partition"));
    }
    if !matches!(record.body, Body::Erased) && lane_number(record.lane()) != lane {
        return Err(Fault::Malformed("lane"));
    }
    if revision > 0 && !matches!(record.body, Body::Score(_) | Body::Erased) {
        return Err(Fault::Malformed("revision"));
    }
    Ok(record)
}

/// The record without salt and content. What the header says stays; of a user's record the salt of whose it is stays beside the
/// hash. Erasing twice is erasing once.
///
/// Errors: bytes that are not a record are given back by no one.
pub fn erase(bytes: &[u8]) -> Result<Vec<u8>, Fault> {
    let parts = Parts::read(bytes)?;
    let (Some((salt, _)), Some(hash)) = (parts.content, parts.hash) else { return Ok(bytes.to_vec()) };
    let mut out = Vec::with_capacity(parts.header.len() + 24);
    out.extend_from_slice(&parts.header[..parts.before_hash]);
    let mut kept = hash.to_vec();
    if is_named(parts.user, parts.key) {
        kept.extend_from_slice(&owner_salt(salt));
    }
    Encoder(&mut out).bytes_some(18, &kept);
    Ok(sealed(out))
}

/// The record when nothing that names this user may be left in it: without its content and, where it is the user's own, without
/// whose it is. `None`: it does not name the user.
///
/// Errors: as of [`decode`].
pub fn without_user(bytes: &[u8], user: &UserId) -> Result<Option<Vec<u8>>, Fault> {
    let record = decode(bytes)?;
    if !record.names(user) {
        return Ok(None);
    }
    if !record.is_of(user) {
        return erase(bytes).map(Some);
    }
    // Its sums were looked at by the decoder.
    let (parts, _) = Parts::take(bytes)?;
    let mut out = Vec::with_capacity(parts.header.len() + 40);
    let mut e = Encoder(&mut out);
    // Of a raw comment it told the user.
    e.number(1, u64::from(record.room.as_ref().map_or(0, |room| routing::partition_of(room).0)));
    parts.copy_header(&mut e, |e| {
        e.text(8, "");
        e.text(9, "");
    })?;
    parts.copy_hashes(parts.owner_hash(), &mut e);
    Ok(Some(sealed(out)))
}

/// Appends what of a record no erase takes away: its header without whose it is, the hash of its content, the hash of whose it is.
/// False, and nothing appended: that is not known of it any more.
///
/// Errors: bytes that are not a record; of those that this process has just made no sum is looked at again.
pub(crate) fn write_kept(bytes: &[u8], is_own: bool, out: &mut Vec<u8>) -> Result<bool, Fault> {
    let parts = if is_own { Parts::take(bytes)?.0 } else { Parts::read(bytes)? };
    let owner = parts.owner_hash();
    // A record that has no content from the start is nobody's.
    if is_named(parts.user, parts.key) && owner.is_none() && parts.hash.is_some() {
        return Ok(false);
    }
    let mut e = Encoder(out);
    parts.copy_header(&mut e, |_| ())?;
    parts.copy_hashes(owner, &mut e);
    Ok(true)
}

/// A header with its checksum.
fn sealed(mut header: Vec<u8>) -> Vec<u8> {
    let checksum = crc32fast::hash(&header);
    Encoder(&mut header).fixed32(21, checksum);
    header
}

/// A record's bytes taken apart, checksum and hash verified.
struct Parts<'a> {
    header: &'a [u8],
    /// Where field 18 begins.
    before_hash: usize,
    user: &'a [u8],
    key: &'a [u8],
    /// Of salt and content.
    hash: Option<&'a [u8; 32]>,
    /// Behind the hash, once the content is gone: the salt of whose it is, or once that is gone too, the hash of it.
    left: &'a [u8],
    content: Option<(&'a Salt, &'a [u8])>,
}

impl<'a> Parts<'a> {
    fn read(bytes: &'a [u8]) -> Result<Parts<'a>, Fault> {
        let (parts, checksum) = Parts::take(bytes)?;
        if crc32fast::hash(parts.header) != checksum {
            return Err(Fault::Checksum);
        }
        if parts.content.is_some_and(|(salt, body)| parts.hash != Some(&hash_of(salt, body))) {
            return Err(Fault::BodyHash);
        }
        Ok(parts)
    }

    /// With the checksum, which is not held against the header, as the content is not against its hash.
    fn take(bytes: &'a [u8]) -> Result<(Parts<'a>, u32), Fault> {
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(Fault::TooLong);
        }
        let mut d = Decoder::new(bytes);
        for number in [1, 2, 3] {
            d.number(number)?;
        }
        d.bytes_some(4)?;
        for number in [5, 6] {
            d.number(number)?;
        }
        d.bytes_some(7)?;
        let user = d.bytes_some(8)?.unwrap_or_default();
        let key = d.bytes_some(9)?.unwrap_or_default();
        for number in [10, 11, 12, 13, 14] {
            d.number(number)?;
        }
        d.bytes_some(15)?;
        d.number(16)?;
        let kind = d.number(17)?;
        let before_hash = bytes.len() - d.rest.len();
        let hashed = d.bytes_some(18)?;
        let header = &bytes[..bytes.len() - d.rest.len()];
        let salt = d.bytes_some(19)?;
        let body = d.bytes_some(20)?;
        let checksum = d.fixed32(21)?.ok_or("checksum")?;
        d.end()?;
        let whole = !matches!(kind, KIND_EPOCH_START | KIND_ERASED);
        let (hash, left) = match hashed.map(|hashed| hashed.split_first_chunk::<32>()) {
            None => (None, &[][..]),
            Some(Some((hash, left))) if matches!(left.len(), 0 | 16 | 32) => (Some(hash), left),
            Some(_) => return Err(Fault::Malformed("body hash")),
        };
        if hash.is_some() != whole || (!whole && salt.is_some()) {
            return Err(Fault::Malformed("body hash"));
        }
        let content = match (salt, body) {
            // A salt beside the hash is of whom the header names; a hash, of whom it names no more.
            (None, None) if left.is_empty() || (left.len() == 16) == is_named(user, key) => None,
            (Some(salt), Some(body)) if left.is_empty() => Some((salt.try_into().map_err(|_| Fault::BodyHash)?, body)),
            _ => return Err(Fault::Malformed("salt and body")),
        };
        Ok((Parts { header, before_hash, user, key, hash, left, content }, checksum))
    }

    /// Fields 2 to 17, whose it is by `whose`.
    fn copy_header(&self, e: &mut Encoder<'_>, whose: impl FnOnce(&mut Encoder<'_>)) -> Result<(), Broken> {
        let mut d = Decoder::new(self.header);
        d.number(1)?;
        for number in [2, 3] {
            e.number(number, d.number(number)?);
        }
        e.text(4, d.text(4)?);
        for number in [5, 6] {
            e.number(number, d.number(number)?);
        }
        e.text(7, d.text(7)?);
        d.text(8)?;
        d.text(9)?;
        whose(e);
        for number in [10, 11, 12, 13, 14] {
            e.number(number, d.number(number)?);
        }
        if let Some(log) = d.text_some(15)? {
            e.bytes_some(15, log.as_bytes());
        }
        for number in [16, 17] {
            e.number(number, d.number(number)?);
        }
        Ok(())
    }

    /// Field 18: the hash of the content, and that of whose it is.
    fn copy_hashes(&self, owner: Option<[u8; 32]>, e: &mut Encoder<'_>) {
        if let Some(hash) = self.hash {
            let mut kept = hash.to_vec();
            kept.extend(owner.into_iter().flatten());
            e.bytes_some(18, &kept);
        }
    }

    /// The hash of whose it is; `None` where it is nobody's, or its salt is gone.
    fn owner_hash(&self) -> Option<[u8; 32]> {
        if self.left.len() == 32 {
            return self.left.try_into().ok();
        }
        if !is_named(self.user, self.key) {
            return None;
        }
        let salt = match self.content {
            Some((salt, _)) => owner_salt(salt),
            None => self.left.try_into().ok()?,
        };
        let mut context = Context::new(&SHA256);
        context.update(&salt);
        // A user's id is at most 64 bytes, so one byte is its length.
        context.update(&[self.user.len() as u8]);
        context.update(self.user);
        context.update(self.key);
        Some(context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

/// Whether a header says whose its record is.
fn is_named(user: &[u8], key: &[u8]) -> bool {
    !user.is_empty() || !key.is_empty()
}

/// The salt of whose a record is, made of its content's; there is no way back.
fn owner_salt(salt: &Salt) -> Salt {
    let mut context = Context::new(&SHA256);
    context.update(b"whose");
    context.update(salt);
    context.finish().as_ref()[..16].try_into().expect("SHA-256 has 32 bytes")
}

fn hash_of(salt: &Salt, body: &[u8]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    context.update(salt);
    context.update(body);
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Salts are drawn from the system's generator 256 at a time: one call costs as much as many salts.
fn fresh_salt() -> Salt {
    const DRAWN: usize = 256 * size_of::<Salt>();
    thread_local! {
        static SALTS: RefCell<(Box<[u8; DRAWN]>, usize)> = RefCell::new((Box::new([0; DRAWN]), DRAWN));
    }
    SALTS.with_borrow_mut(|(bytes, used)| {
        if *used == DRAWN {
            aws_lc_rs::rand::fill(&mut bytes[..]).expect("the system has a random source");
            *used = 0;
        }
        let salt = bytes[*used..*used + 16].try_into().expect("the buffer holds whole salts");
        // A salt that stays in memory after use could be found there after its text was erased.
        bytes[*used..*used + 16].fill(0);
        *used += 16;
        salt
    })
}

/// Runs with an empty buffer that keeps its room from one record to the next.
fn with_scratch(run: impl FnOnce(&mut Vec<u8>)) {
    thread_local! {
        static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.clear();
        run(scratch);
    });
}

/// Almost every record of a server has one region; its text is shared.
fn shared_region(region: &str) -> Arc<str> {
    thread_local! {
        static LAST: RefCell<Arc<str>> = RefCell::new("local".into());
    }
    LAST.with_borrow_mut(|last| {
        if **last != *region {
            *last = region.into();
        }
        Arc::clone(last)
    })
}

fn lane_number(lane: Option<Lane>) -> u64 {
    match lane {
        None => 0,
        Some(Lane::Priority) => 1,
        Some(Lane::Comment) => 2,
        Some(Lane::Latest | Lane::Site) => panic!("latest values and banners are not records of a room's log"),
    }
}

const KIND_EPOCH_START: u64 = 1;
const KIND_COMMENT: u64 = 2;
const KIND_SCORE: u64 = 3;
const KIND_GIFT: u64 = 4;
const KIND_RETRACT: u64 = 5;
const KIND_CONFIG: u64 = 6;
const KIND_ROOM: u64 = 7;
const KIND_BAN: u64 = 8;
const KIND_UNBAN: u64 = 9;
const KIND_ERASED: u64 = 10;
const KIND_AUDIT: u64 = 11;
const KIND_WIDE: u64 = 12;
const KIND_NARROW: u64 = 13;
const KIND_TALLY: u64 = 14;
const KIND_BANNER: u64 = 15;
const KIND_BANNER_END: u64 = 16;
const KIND_COMBO: u64 = 17;
const KIND_BLOCKED: u64 = 18;
const KIND_HELD: u64 = 19;
const KIND_HELD_END: u64 = 20;
const KIND_SITE_BAN: u64 = 21;
const KIND_SITE_UNBAN: u64 = 22;
const KIND_REPORT: u64 = 23;
const KIND_ERASE_USER: u64 = 24;
const KIND_REVOKE: u64 = 26;
const KIND_REVOKE_END: u64 = 27;
const KIND_OUTAGE: u64 = 28;
const KIND_FEED: u64 = 30;
const KIND_LAST: u64 = KIND_FEED;

fn kind_of(body: &Body) -> u64 {
    match body {
        Body::EpochStart => KIND_EPOCH_START,
        Body::Comment(_) => KIND_COMMENT,
        Body::Score(_) => KIND_SCORE,
        Body::Gift(_) => KIND_GIFT,
        Body::Retract(_) => KIND_RETRACT,
        Body::Config(_) => KIND_CONFIG,
        Body::Room(_) => KIND_ROOM,
        Body::Ban(_) => KIND_BAN,
        Body::Unban(_) => KIND_UNBAN,
        Body::Audit(_) => KIND_AUDIT,
        Body::Wide(_) => KIND_WIDE,
        Body::Narrow(_) => KIND_NARROW,
        Body::Tally(_) => KIND_TALLY,
        Body::Banner(_) => KIND_BANNER,
        Body::BannerEnd(_) => KIND_BANNER_END,
        Body::Combo(_) => KIND_COMBO,
        Body::Blocked(_) => KIND_BLOCKED,
        Body::Held(_) => KIND_HELD,
        Body::HeldEnd(_) => KIND_HELD_END,
        Body::SiteBan(_) => KIND_SITE_BAN,
        Body::SiteUnban(_) => KIND_SITE_UNBAN,
        Body::Report(_) => KIND_REPORT,
        Body::Revoke(..) => KIND_REVOKE,
        Body::RevokeEnd(_) => KIND_REVOKE_END,
        Body::Outage(_) => KIND_OUTAGE,
        Body::Feed(_) => KIND_FEED,
        Body::EraseUser(_) => KIND_ERASE_USER,
        Body::Erased => KIND_ERASED,
    }
}

fn encode_comment(c: &Comment, e: &mut Encoder<'_>) {
    e.text(1, &c.display);
    for badge in c.badges.iter() {
        e.bytes_some(2, badge.as_bytes());
    }
    e.text(3, &c.text);
    e.number(4, c.reply_to.map_or(0, EventId::value));
    if let Some(won) = &c.won {
        e.number_some(5, won.window.0);
        e.number(6, u64::from(won.weight));
        e.number(7, u64::from(won.repeats));
        e.bool(8, won.by_right);
        e.text(9, won.addressee.as_ref().map_or("", UserId::as_str));
        e.number(10, u64::from(won.of));
    }
    if let Some(rule) = &c.rule {
        e.bytes_some(11, rule.as_bytes());
    }
    e.bool(13, c.shadowed);
}

fn decode_inner_comment(d: &mut Decoder<'_>) -> Result<Comment, Broken> {
    let mut inner = Decoder::new(d.bytes_some(1)?.ok_or("a comment")?);
    let comment = decode_comment(&mut inner)?;
    inner.end()?;
    Ok(comment)
}

fn decode_comment(d: &mut Decoder<'_>) -> Result<Comment, Broken> {
    let display = d.text(1)?.into();
    let mut badges: Vec<Arc<str>> = Vec::new();
    while let Some(badge) = d.text_some(2)? {
        badges.push(badge.into());
    }
    let text = d.text(3)?.into();
    let reply_to = d.number_some(4)?.map(|id| EventId::new(id).ok_or("reply_to")).transpose()?;
    let won = match d.number_some(5)? {
        None => None,
        Some(window) => Some(Box::new(Won {
            window: WindowNumber(window),
            weight: d.number32(6)?,
            repeats: d.number32(7)?,
            by_right: d.bool(8)?,
            addressee: name(d.text(9)?, UserId::parse, "addressee")?,
            of: d.number32(10)?,
        })),
    };
    let rule = d.text_some(11)?.map(Arc::from);
    let shadowed = d.bool(13)?;
    Ok(Comment { display, badges: badges.into(), text, reply_to, won, rule, shadowed })
}

fn encode_body(body: &Body, e: &mut Encoder<'_>) {
    match body {
        Body::EpochStart | Body::Erased => {}
        Body::Comment(c) => encode_comment(c, e),
        Body::Blocked(b) => {
            nested(e, 1, |e| encode_comment(&b.comment, e));
            e.text(2, b.client_msg_id.as_ref().map_or("", ClientMsgId::as_str));
        }
        Body::Held(h) => {
            nested(e, 1, |e| encode_comment(&h.comment, e));
            e.text(2, h.client_msg_id.as_str());
            e.number(3, h.until.0);
        }
        Body::HeldEnd(h) => {
            e.number(1, h.held.value());
            e.text(2, h.client_msg_id.as_str());
            let (end, shown) = match h.end {
                End::Approved(id) => (1, id.value()),
                End::Denied => (2, 0),
                End::Expired => (3, 0),
            };
            e.number(3, end);
            e.number(4, shown);
        }
        Body::Score(s) => {
            e.text(1, s.match_id.as_str());
            e.text(2, s.provider.as_str());
            e.text(3, s.event.as_str());
            e.number(4, s.kind as u64 + 1);
            e.number(5, s.state as u64 + 1);
            e.number(6, u64::from(s.home));
            e.number(7, u64::from(s.away));
            if let Some(minute) = &s.minute {
                e.bytes_some(8, minute.as_bytes());
            }
            e.bool(9, s.superseded);
            e.bool(10, s.historical);
            e.bytes_some(11, &s.digest);
            if let Some(data) = &s.data {
                e.bytes_some(12, data.as_bytes());
            }
            if let Some(shown) = &s.shown {
                e.text(13, shown.key.as_str());
                e.number(14, u64::from(shown.revision.0));
                e.bool(15, shown.again);
            }
        }
        Body::Gift(g) => {
            e.text(1, g.gift_id.as_str());
            e.text(2, &g.display);
            e.text(3, &g.item);
            e.number(4, u64::from(g.count));
            e.number(5, g.amount_micros);
            e.text(6, &g.currency);
            if let Some(until) = g.banner_until {
                e.number_some(7, until.0);
            }
        }
        Body::Retract(r) => {
            match &r.target {
                RetractTarget::Event(id) => e.number(1, id.value()),
                RetractTarget::User(user) | RetractTarget::Since(user, _) => e.text(2, user.as_str()),
                RetractTarget::All => e.bool(3, true),
            }
            e.text(4, &r.reason);
            if let RetractTarget::Since(_, from) = &r.target {
                e.number_some(5, from.0);
            }
        }
        Body::Config(c) => {
            if let Some(title) = &c.title {
                e.bytes_some(1, title.as_bytes());
            }
            e.number(2, c.state.map_or(0, |s| s as u64 + 1));
            if let Some(seconds) = c.slow_mode_seconds {
                e.number_some(3, u64::from(seconds));
            }
            if let Some(Some(at)) = c.until_ts {
                e.number_some(4, at.0);
            }
            e.bool(5, c.until_ts == Some(None));
            e.number(6, c.moderation_policy.map_or(0, |p| p as u64 + 1));
            if let Some(pinned) = &c.pinned {
                e.bytes_some(7, &packed(pinned));
            }
            if let Some(sampled) = c.sampled {
                e.number_some(8, u64::from(sampled));
            }
            if let Some(cap) = c.cap {
                e.number_some(9, u64::from(cap));
            }
            if let Some(on) = c.emote_only {
                e.number_some(10, u64::from(on));
            }
            if let Some(on) = c.unique_comment {
                e.number_some(11, u64::from(on));
            }
            if let Some(Some(badge)) = &c.members_only {
                e.bytes_some(12, badge.as_bytes());
            }
            e.bool(13, c.members_only == Some(None));
        }
        Body::Room(room) => encode_room(room, e),
        Body::Ban(ban) | Body::SiteBan(ban) => encode_ban(ban, e),
        Body::Unban(user) | Body::SiteUnban(user) | Body::EraseUser(user) => e.text(1, user.as_str()),
        Body::Report(report) => {
            e.number(1, report.event.value());
            e.text(2, &report.reason);
        }
        Body::Audit(a) => {
            e.text(1, &a.what);
            e.text(2, &a.justification);
        }
        Body::Wide(crowd) | Body::Narrow(crowd) => {
            e.number(1, u64::from(crowd.rate));
            e.number(2, crowd.viewers);
        }
        Body::Tally(t) => {
            for (room, totals) in &t.rooms {
                nested(e, 1, |e| {
                    e.text(1, room.as_str());
                    encode_totals(2, totals, e);
                });
            }
            for (sender, number) in &t.senders {
                nested(e, 2, |e| {
                    e.number(1, *sender);
                    e.number(2, *number);
                });
            }
        }
        Body::Banner(b) => encode_banner(b, e),
        Body::BannerEnd(id) => e.number(1, id.value()),
        Body::Combo(c) => {
            e.number(1, c.first.value());
            e.text(2, &c.display);
            e.text(3, &c.item);
            e.text(4, &c.currency);
            e.number(5, u64::from(c.gifts));
            e.number(6, c.count);
            e.number(7, c.amount_micros);
            e.bool(8, c.ended);
        }
        Body::Revoke(what, until) => {
            encode_revoked(what, e);
            e.number(4, until.0);
        }
        Body::RevokeEnd(what) => encode_revoked(what, e),
        Body::Feed(feed) => encode_feed(feed, e),
        Body::Outage(until) => {
            if let Some(until) = until {
                e.number_some(1, until.0);
            }
        }
    }
}

/// Writes a nested message, an empty one too.
pub(crate) fn nested(e: &mut Encoder<'_>, field: u32, write: impl FnOnce(&mut Encoder<'_>)) {
    let mut inner = Vec::new();
    write(&mut Encoder(&mut inner));
    e.bytes_some(field, &inner);
}

/// Every message of a field that [`nested`] wrote again and again, in order.
pub(crate) fn repeated<T>(
    d: &mut Decoder<'_>,
    field: u32,
    mut read: impl FnMut(&mut Decoder<'_>) -> Result<T, Broken>,
) -> Result<Vec<T>, Broken> {
    let mut items = Vec::new();
    while let Some(bytes) = d.bytes_some(field)? {
        let mut inner = Decoder::new(bytes);
        items.push(read(&mut inner)?);
        inner.end()?;
    }
    Ok(items)
}

pub(crate) fn encode_totals(field: u32, totals: &[(LikeKind, u64)], e: &mut Encoder<'_>) {
    for (kind, total) in totals {
        nested(e, field, |e| {
            e.text(1, kind.as_str());
            e.number(2, *total);
        });
    }
}

pub(crate) fn decode_totals(field: u32, d: &mut Decoder<'_>) -> Result<likes::Totals, Broken> {
    let totals = repeated(d, field, |d| Ok((LikeKind::parse(d.text(1)?).ok_or("kind of like")?, d.number(2)?)))?;
    let rising = totals.windows(2).all(|pair| pair[0].0 < pair[1].0);
    if rising { Ok(totals.into()) } else { Err("the order of kinds") }
}

fn decode_tally(d: &mut Decoder<'_>) -> Result<Tally, Broken> {
    let rooms = repeated(d, 1, |d| Ok((RoomId::parse(d.text(1)?).ok_or("room")?, decode_totals(2, d)?)))?;
    let senders = repeated(d, 2, |d| Ok((d.number(1)?, d.number(2)?)))?;
    let tally = Tally { rooms, senders };
    let rising = tally.rooms.windows(2).all(|pair| pair[0].0 < pair[1].0)
        && tally.senders.windows(2).all(|pair| pair[0].0 < pair[1].0);
    if rising { Ok(tally) } else { Err("the order of a tally") }
}

pub(crate) fn encode_room(room: &Room, e: &mut Encoder<'_>) {
    e.text(1, &room.title);
    e.number(2, room.state as u64 + 1);
    for key in &room.matches {
        e.text(3, key.as_str());
    }
    e.bool(4, room.anonymous_view);
    e.bool(5, room.anonymous_publish);
    e.bool(6, room.listed);
    e.number(7, u64::from(room.rate));
    e.number(8, u64::from(room.user_rate));
    e.number(9, u64::from(room.user_burst));
    if let Some(ms) = room.merge_ms {
        e.number_some(10, u64::from(ms));
    }
    e.number(11, u64::from(room.resume_window_seconds));
    e.number(12, u64::from(room.retention_days));
    e.number(13, u64::from(room.slow_mode_seconds));
    if let Some(at) = room.slow_mode_until {
        e.number_some(14, at.0);
    }
    e.number(15, room.moderation_policy as u64 + 1);
    e.bytes(16, &packed(&room.pinned));
    e.number(17, room.version);
    if let Some(ms) = room.comment_age_ms {
        e.number_some(18, u64::from(ms));
    }
    encode_rules(&room.sampling, e);
    if room.like_rate != likes::RATE {
        e.number_some(30, u64::from(room.like_rate));
    }
    for item in &room.banner_items {
        e.bytes_some(35, item.as_bytes());
    }
    for (currency, from) in &room.banner_amounts {
        let mut inner = Vec::new();
        let mut one = Encoder(&mut inner);
        one.text(1, currency);
        one.number(2, *from);
        e.bytes_some(36, &inner);
    }
    for (field, value, default) in [
        (37, room.banner_rate, banners::ROOM_RATE),
        (38, room.banner_seconds, banners::GIFT_SECONDS),
        (39, room.combo_seconds, combos::SECONDS),
    ] {
        // Written where it is another than a room has that was never told.
        if value != default {
            e.number_some(field, u64::from(value));
        }
    }
    e.bool(40, room.hold_flagged);
    if room.hold_seconds != moderation::HOLD_SECONDS {
        e.number_some(41, u64::from(room.hold_seconds));
    }
    if room.settle_seconds != rooms::SETTLE_SECONDS {
        e.number_some(42, u64::from(room.settle_seconds));
    }
    if let Some(at) = room.settles_until {
        e.number_some(43, at.0);
    }
    e.bool(50, room.unique_comment);
    e.bool(51, room.emote_only);
    if let Some(badge) = &room.members_only {
        e.bytes_some(52, badge.as_bytes());
    }
    for (id, until) in &room.pin_ends {
        nested(e, 53, |e| {
            e.number(1, id.value());
            e.number(2, until.0);
        });
    }
    for region in &room.blackout_regions {
        e.text(60, &region.to_string());
    }
}

/// What is as in any room is not written.
fn encode_rules(rules: &Rules, e: &mut Encoder<'_>) {
    let any = Rules::default();
    let mut differs = |field, value: u32, default: u32| {
        if value != default {
            e.number_some(field, u64::from(value));
        }
    };
    differs(20, rules.when as u32, any.when as u32);
    differs(21, rules.rate, any.rate);
    differs(22, rules.viewers, any.viewers);
    differs(23, rules.preset as u32, any.preset as u32);
    if let Some(cap) = rules.cap {
        e.number_some(24, u64::from(cap));
    }
    let mut differs = |field, value: u32, default: u32| {
        if value != default {
            e.number_some(field, u64::from(value));
        }
    };
    differs(25, rules.weights.base, any.weights.base);
    differs(26, rules.weights.per_reply, any.weights.per_reply);
    differs(27, rules.weights.per_reaction, any.weights.per_reaction);
    for (badge, weight) in &rules.weights.badges {
        let mut inner = Vec::new();
        let mut message = Encoder(&mut inner);
        message.text(1, badge);
        message.number(2, u64::from(*weight));
        e.bytes_some(28, &inner);
    }
}

fn decode_rules(d: &mut Decoder<'_>) -> Result<Rules, Broken> {
    let any = Rules::default();
    fn number(d: &mut Decoder<'_>, field: u32, default: u32) -> Result<u32, Broken> {
        d.number_some(field)?.map_or(Ok(default), |n| u32::try_from(n).map_err(|_| "sampling"))
    }
    Ok(Rules {
        when: nth(&Sampling::ALL, u64::from(number(d, 20, any.when as u32)?) + 1, "sampling")?,
        rate: number(d, 21, any.rate)?,
        viewers: number(d, 22, any.viewers)?,
        preset: nth(&Preset::ALL, u64::from(number(d, 23, any.preset as u32)?) + 1, "preset")?,
        cap: d.number_some(24)?.map(|n| u32::try_from(n).map_err(|_| "cap")).transpose()?,
        weights: Weights {
            base: number(d, 25, any.weights.base)?,
            per_reply: number(d, 26, any.weights.per_reply)?,
            per_reaction: number(d, 27, any.weights.per_reaction)?,
            badges: repeated(d, 28, |d| Ok((d.text(1)?.into(), d.number32(2)?)))?,
        },
    })
}

pub(crate) fn encode_ban(ban: &Ban, e: &mut Encoder<'_>) {
    e.text(1, ban.user.as_str());
    if let Some(until) = ban.until {
        e.number_some(2, until.0);
    }
    e.text(3, &ban.reason);
    e.bool(4, ban.shadow);
}

pub(crate) fn decode_ban(d: &mut Decoder<'_>) -> Result<Ban, Broken> {
    Ok(Ban {
        user: UserId::parse(d.text(1)?).ok_or("user")?,
        until: d.number_some(2)?.map(Wall),
        reason: d.text(3)?.into(),
        shadow: d.bool(4)?,
    })
}

/// Fields 1 to 3: a user's tokens, a session's, a key's.
pub(crate) fn encode_revoked(what: &Revoked, e: &mut Encoder<'_>) {
    match what {
        Revoked::User(user) => e.text(1, user.as_str()),
        Revoked::Session(session) => e.text(2, session),
        Revoked::Key(key) => e.text(3, key),
    }
}

pub(crate) fn decode_revoked(d: &mut Decoder<'_>) -> Result<Revoked, Broken> {
    let (user, session, key) = (d.text(1)?, d.text(2)?, d.text(3)?);
    match (user, session, key) {
        (user, "", "") => UserId::parse(user).map(Revoked::User).ok_or("revoked"),
        ("", session, "") if Revoked::is_name(session) => Ok(Revoked::Session(session.into())),
        ("", "", key) if Revoked::is_name(key) => Ok(Revoked::Key(key.into())),
        _ => Err("revoked"),
    }
}

pub(crate) fn encode_banner(banner: &Banner, e: &mut Encoder<'_>) {
    e.text(1, &banner.text);
    if let Some(gift) = &banner.gift {
        e.text(3, gift.user.as_str());
        e.text(4, &gift.display);
        e.text(5, &gift.item);
        e.number(6, u64::from(gift.count));
    }
    e.text(7, banner.room.as_ref().map_or("", RoomId::as_str));
    e.number(8, banner.until.0);
}

pub(crate) fn decode_banner(d: &mut Decoder<'_>) -> Result<Banner, Broken> {
    let text = d.text(1)?.into();
    let gift = match d.text_some(3)? {
        None => None,
        Some(user) => Some(BannerGift {
            user: UserId::parse(user).ok_or("user")?,
            display: d.text(4)?.into(),
            item: d.text(5)?.into(),
            count: d.number32(6)?,
        }),
    };
    Ok(Banner { text, gift, room: name(d.text(7)?, RoomId::parse, "room")?, until: Wall(d.number(8)?) })
}

fn encode_feed(feed: &MatchFeed, e: &mut Encoder<'_>) {
    e.text(1, feed.match_id.as_str());
    e.text(2, feed.primary.as_str());
    e.text(3, feed.stand_by.as_ref().map_or("", Key::as_str));
    for (event, key) in &feed.twins {
        nested(e, 4, |e| {
            e.text(1, event.as_str());
            e.text(2, key.as_str());
        });
    }
}

fn decode_feed(d: &mut Decoder<'_>) -> Result<MatchFeed, Broken> {
    Ok(MatchFeed {
        match_id: Key::parse(d.text(1)?).ok_or("match_id")?,
        primary: Key::parse(d.text(2)?).ok_or("primary")?,
        stand_by: name(d.text(3)?, Key::parse, "stand_by")?,
        twins: repeated(d, 4, |d| {
            let event = Key::parse(d.text(1)?).ok_or("a twin")?;
            Ok((event, Key::parse(d.text(2)?).ok_or("a twin")?))
        })?,
    })
}

fn packed(ids: &[EventId]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut e = Encoder(&mut out);
    for id in ids {
        e.varint(id.value());
    }
    out
}

fn unpacked(bytes: &[u8]) -> Result<Vec<EventId>, Broken> {
    let mut d = Decoder::new(bytes);
    let mut ids = Vec::new();
    while !d.rest.is_empty() {
        ids.push(EventId::new(d.varint()?).ok_or("an event id")?);
    }
    Ok(ids)
}

fn decode_body(kind: u64, revision: u32, bytes: &[u8]) -> Result<Body, Broken> {
    let mut d = Decoder::new(bytes);
    let body = match kind {
        KIND_COMMENT => Body::Comment(decode_comment(&mut d)?),
        KIND_BLOCKED => Body::Blocked(Blocked {
            comment: decode_inner_comment(&mut d)?,
            client_msg_id: name(d.text(2)?, ClientMsgId::parse, "client_msg_id")?,
        }),
        KIND_HELD => Body::Held(Held {
            comment: decode_inner_comment(&mut d)?,
            client_msg_id: ClientMsgId::parse(d.text(2)?).ok_or("client_msg_id")?,
            until: Wall(d.number(3)?),
        }),
        KIND_HELD_END => Body::HeldEnd(HeldEnd {
            held: EventId::new(d.number(1)?).ok_or("held")?,
            client_msg_id: ClientMsgId::parse(d.text(2)?).ok_or("client_msg_id")?,
            end: match (d.number(3)?, d.number_some(4)?) {
                (1, Some(shown)) => End::Approved(EventId::new(shown).ok_or("shown")?),
                (2, None) => End::Denied,
                (3, None) => End::Expired,
                _ => return Err("the end of a held comment"),
            },
        }),
        KIND_SCORE => Body::Score(Score {
            match_id: Key::parse(d.text(1)?).ok_or("match_id")?,
            provider: Key::parse(d.text(2)?).ok_or("provider")?,
            event: Key::parse(d.text(3)?).ok_or("event")?,
            revision: Revision(revision),
            kind: nth(&ScoreKind::ALL, d.number(4)?, "kind")?,
            state: nth(&ScoreState::ALL, d.number(5)?, "state")?,
            home: d.number32(6)?,
            away: d.number32(7)?,
            minute: d.text_some(8)?.map(Arc::from),
            superseded: d.bool(9)?,
            historical: d.bool(10)?,
            digest: d.bytes_some(11)?.and_then(|b| b.try_into().ok()).ok_or("digest")?,
            data: d.text_some(12)?.map(Arc::from),
            shown: match d.text_some(13)? {
                None => None,
                Some(key) => Some(Shown {
                    key: Key::parse(key).ok_or("shown")?,
                    revision: Revision(d.number32(14)?),
                    again: d.bool(15)?,
                }),
            },
        }),
        KIND_GIFT => Body::Gift(Gift {
            gift_id: Key::parse(d.text(1)?).ok_or("gift_id")?,
            display: d.text(2)?.into(),
            item: d.text(3)?.into(),
            count: d.number32(4)?,
            amount_micros: d.number(5)?,
            currency: d.text(6)?.into(),
            banner_until: d.number_some(7)?.map(Wall),
        }),
        KIND_RETRACT => {
            let target = match (d.number_some(1)?, d.text_some(2)?, d.bool(3)?) {
                (Some(id), None, false) => RetractTarget::Event(EventId::new(id).ok_or("target")?),
                (None, Some(user), false) => RetractTarget::User(UserId::parse(user).ok_or("target")?),
                (None, None, true) => RetractTarget::All,
                _ => return Err("target"),
            };
            let reason = d.text(4)?.into();
            let target = match (target, d.number_some(5)?) {
                (target, None) => target,
                (RetractTarget::User(user), Some(from)) => RetractTarget::Since(user, Wall(from)),
                _ => return Err("target"),
            };
            Body::Retract(Retract { target, reason })
        }
        KIND_CONFIG => {
            let title = d.text_some(1)?.map(Arc::from);
            let state = d.number_some(2)?.map(|n| nth(&RoomState::ALL, n, "state")).transpose()?;
            let slow_mode_seconds = d.number_some(3)?.map(|n| u32::try_from(n).map_err(|_| "slow mode")).transpose()?;
            let until = d.number_some(4)?.map(Wall);
            let until_ts = match (until, d.bool(5)?) {
                (None, false) => None,
                (Some(at), false) => Some(Some(at)),
                (None, true) => Some(None),
                (Some(_), true) => return Err("until_ts"),
            };
            let moderation_policy = d.number_some(6)?.map(|n| nth(&Policy::ALL, n, "policy")).transpose()?;
            let pinned = d.bytes_some(7)?.map(unpacked).transpose()?.map(Arc::from);
            let switched = |n: Option<u64>, what: &'static str| match n {
                None => Ok(None),
                Some(0) => Ok(Some(false)),
                Some(1) => Ok(Some(true)),
                Some(_) => Err(what),
            };
            let sampled = switched(d.number_some(8)?, "sampled")?;
            let cap = d.number_some(9)?.map(|n| u32::try_from(n).map_err(|_| "cap")).transpose()?;
            let emote_only = switched(d.number_some(10)?, "emote_only")?;
            let unique_comment = switched(d.number_some(11)?, "unique_comment")?;
            let badge = d.text_some(12)?.map(Arc::from);
            let members_only = match (badge, d.bool(13)?) {
                (None, false) => None,
                (Some(badge), false) => Some(Some(badge)),
                (None, true) => Some(None),
                (Some(_), true) => return Err("members_only"),
            };
            Body::Config(Config {
                title,
                state,
                slow_mode_seconds,
                until_ts,
                moderation_policy,
                pinned,
                sampled,
                cap,
                emote_only,
                unique_comment,
                members_only,
            })
        }
        KIND_ROOM => Body::Room(Arc::new(decode_room(&mut d)?)),
        KIND_BAN => Body::Ban(decode_ban(&mut d)?),
        KIND_SITE_BAN => Body::SiteBan(decode_ban(&mut d)?),
        KIND_REPORT => {
            Body::Report(Report { event: EventId::new(d.number(1)?).ok_or("event")?, reason: d.text(2)?.into() })
        }
        KIND_UNBAN => Body::Unban(UserId::parse(d.text(1)?).ok_or("user")?),
        KIND_SITE_UNBAN => Body::SiteUnban(UserId::parse(d.text(1)?).ok_or("user")?),
        KIND_WIDE => Body::Wide(Crowd { rate: d.number32(1)?, viewers: d.number(2)? }),
        KIND_NARROW => Body::Narrow(Crowd { rate: d.number32(1)?, viewers: d.number(2)? }),
        KIND_TALLY => Body::Tally(decode_tally(&mut d)?),
        KIND_BANNER => Body::Banner(decode_banner(&mut d)?),
        KIND_BANNER_END => Body::BannerEnd(EventId::new(d.number(1)?).ok_or("banner")?),
        KIND_COMBO => Body::Combo(ComboUpdate {
            first: EventId::new(d.number(1)?).ok_or("first")?,
            display: d.text(2)?.into(),
            item: d.text(3)?.into(),
            currency: d.text(4)?.into(),
            gifts: d.number32(5)?,
            count: d.number(6)?,
            amount_micros: d.number(7)?,
            ended: d.bool(8)?,
        }),
        KIND_REVOKE => {
            let what = decode_revoked(&mut d)?;
            Body::Revoke(what, Wall(d.number(4)?))
        }
        KIND_REVOKE_END => Body::RevokeEnd(decode_revoked(&mut d)?),
        KIND_ERASE_USER => Body::EraseUser(UserId::parse(d.text(1)?).ok_or("user")?),
        KIND_OUTAGE => Body::Outage(d.number_some(1)?.map(Wall)),
        KIND_FEED => Body::Feed(Arc::new(decode_feed(&mut d)?)),
        KIND_AUDIT => Body::Audit(Audit { what: d.text(1)?.into(), justification: d.text(2)?.into() }),
        _ => return Err("kind"),
    };
    d.end()?;
    Ok(body)
}

pub(crate) fn decode_room(d: &mut Decoder<'_>) -> Result<Room, Broken> {
    Ok(Room {
        title: d.text(1)?.into(),
        state: nth(&RoomState::ALL, d.number(2)?, "state")?,
        matches: {
            let mut matches = Vec::new();
            while let Some(key) = d.text_some(3)? {
                matches.push(Key::parse(key).ok_or("match")?);
            }
            matches
        },
        anonymous_view: d.bool(4)?,
        anonymous_publish: d.bool(5)?,
        listed: d.bool(6)?,
        rate: d.number32(7)?,
        user_rate: d.number32(8)?,
        user_burst: d.number32(9)?,
        merge_ms: d.number_some(10)?.map(|n| u32::try_from(n).map_err(|_| "merge_ms")).transpose()?,
        resume_window_seconds: d.number32(11)?,
        retention_days: d.number32(12)?,
        slow_mode_seconds: d.number32(13)?,
        slow_mode_until: d.number_some(14)?.map(Wall),
        moderation_policy: nth(&Policy::ALL, d.number(15)?, "policy")?,
        pinned: d.bytes_some(16)?.map(unpacked).transpose()?.unwrap_or_default(),
        version: d.number(17)?,
        comment_age_ms: d.number_some(18)?.map(|n| u32::try_from(n).map_err(|_| "comment_age_ms")).transpose()?,
        sampling: decode_rules(d)?,
        like_rate: match d.number_some(30)? {
            Some(rate) => u32::try_from(rate).map_err(|_| "like_rate")?,
            None => likes::RATE,
        },
        banner_items: {
            let mut items = Vec::new();
            while let Some(item) = d.text_some(35)? {
                items.push(item.into());
            }
            items
        },
        banner_amounts: {
            let mut amounts = BTreeMap::new();
            while let Some(bytes) = d.bytes_some(36)? {
                let mut one = Decoder::new(bytes);
                let (currency, from) = (one.text(1)?, one.number(2)?);
                one.end()?;
                if amounts.last_key_value().is_some_and(|(last, _): (&Arc<str>, _)| **last >= *currency) {
                    return Err("the order of currencies");
                }
                amounts.insert(currency.into(), from);
            }
            amounts
        },
        banner_rate: or_default(d, 37, banners::ROOM_RATE)?,
        banner_seconds: or_default(d, 38, banners::GIFT_SECONDS)?,
        combo_seconds: or_default(d, 39, combos::SECONDS)?,
        hold_flagged: d.bool(40)?,
        hold_seconds: or_default(d, 41, moderation::HOLD_SECONDS)?,
        settle_seconds: or_default(d, 42, rooms::SETTLE_SECONDS)?,
        settles_until: d.number_some(43)?.map(Wall),
        unique_comment: d.bool(50)?,
        emote_only: d.bool(51)?,
        members_only: d.text_some(52)?.map(Arc::from),
        pin_ends: {
            let ends = repeated(d, 53, |d| Ok((EventId::new(d.number(1)?).ok_or("a pin")?, Wall(d.number(2)?))))?;
            if !ends.windows(2).all(|pair| pair[0].0 < pair[1].0) {
                return Err("the order of pins");
            }
            ends.into_iter().collect()
        },
        blackout_regions: {
            let mut regions = Vec::new();
            while let Some(region) = d.text_some(60)? {
                regions.push(Region::parse(region).filter(|r| r.to_string() == region).ok_or("region")?);
            }
            regions
        },
    })
}

fn or_default(d: &mut Decoder<'_>, field: u32, default: u32) -> Result<u32, Broken> {
    match d.number_some(field)? {
        Some(n) if n == u64::from(default) => Err("a default that is written out"),
        Some(n) => u32::try_from(n).map_err(|_| "a 32-bit number"),
        None => Ok(default),
    }
}

/// The value at a place of a closed list, counted from 1.
fn nth<T: Copy>(all: &[(T, &str)], place: u64, what: &'static str) -> Result<T, Broken> {
    let idx = usize::try_from(place).ok().and_then(|n| n.checked_sub(1)).ok_or(what)?;
    all.get(idx).map(|(value, _)| *value).ok_or(what)
}

/// An optional name of the header: empty is absent.
pub(crate) fn name<T>(text: &str, parse: fn(&str) -> Option<T>, what: &'static str) -> Result<Option<T>, Broken> {
    if text.is_empty() { Ok(None) } else { parse(text).map(Some).ok_or(what) }
}
