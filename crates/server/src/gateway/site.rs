//! Site-wide banners on one worker: from the shard's list to every open stream, once.
//!
//! Like a bell-ringer with a list: when the list names a banner he has not cried yet, it joins his queue; he cries one a
//! second. Who is being written to anyway hears it with that; half a second later he goes round to the others. Who enters
//! reads what hangs on the wall.
//!
//! ```text
//! list ─► queue (≤ 64) ─► notice, one a second ─► rides the viewer's next frame ─► after 500 ms alone, in slices
//! ```
//!
//! The list is absolute: the shard sends all banners that stand, and whatever was lost on the way is made good by the next. A
//! viewer keeps the number of the newest notice it was given, and no queue; a long-poll's line keeps the newest banner, whose
//! ids are the same on every worker. A banner's work is cut as walks are, polls with it, so that no room waits for it longer
//! than a slice, and it gets a slice in every turn, so that no room's storm stops it.
//!
//! The awkward case is a banner that an operator takes down: it is cried once more with `ended`, or leaves the queue unheard.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use grandstand_core::ids::EventId;
use grandstand_core::names::UserId;
use grandstand_core::time::{Mono, Wall};
use grandstand_wire::event;

use super::conn::{Conn, Kind, Sent};
use super::frames::{self, Out};
use super::polls::Known;
use super::worker::Worker;
use crate::clock;
use crate::link::{SiteBanner, SiteList};
use crate::metrics::{BannerHop, Transport, add};

/// Between two notices.
const EVERY: Duration = Duration::from_secs(1);
/// A notice rides for so long before it goes alone.
const ALONE_AFTER: Duration = Duration::from_millis(500);
/// Twice what may stand at one time: as many again may end.
const QUEUE_MAX: usize = 64;
/// Notices that a viewer who took nothing for a while is still told.
const KEPT: usize = 8;
/// A turn's share of the round, and how often it looks at the clock. Half of a walk's slice: banners can wait longer.
const SLICE: Duration = Duration::from_millis(1);
const CLOCK_EVERY: usize = 16;
/// Slots that are looked at and passed over cost a sixteenth of a write.
const PASSED_EVERY: usize = 256;

#[derive(Default)]
pub(super) struct Site {
    /// Who may be nowhere, as the list says.
    pub(super) bans: Arc<[(UserId, Option<Wall>)]>,
    /// What the list named, and when each is over.
    named: BTreeMap<EventId, Mono>,
    /// The first list was taken: what a later one adds is news.
    listed: bool,
    queue: VecDeque<Word>,
    /// Cried and not over: what hangs on the wall.
    standing: Vec<Standing>,
    /// The newest that ever hung there.
    newest: Option<EventId>,
    /// The last ones, the newest last.
    notices: VecDeque<Notice>,
    /// Number of the newest notice.
    version: u16,
    next_at: Mono,
    alone_at: Option<Mono>,
    /// Where the round goes on.
    next_slot: Option<usize>,
}

/// A banner, and when it is over: by a clock that nobody sets back.
#[derive(Clone)]
struct Standing {
    banner: Arc<SiteBanner>,
    over_at: Mono,
}

/// A banner, or that it ended.
struct Word {
    standing: Standing,
    ended: bool,
}

struct Notice {
    id: EventId,
    /// When its record was made, and when it was first given.
    ts: Wall,
    at: Mono,
    over_at: Mono,
    ended: bool,
    json: Vec<u8>,
    web_socket: Bytes,
    sse: Bytes,
}

impl Site {
    /// The number of the newest notice: who has heard it has heard all.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// The newest notice for one who has heard all but it; what others lack is told them alone.
    pub fn rides(&self, heard: u16, now: Mono) -> Option<Out<'_>> {
        let newest = self.notices.back()?;
        let fits = heard.wrapping_add(1) == self.version && now < newest.over_at;
        fits.then(|| Out { kind: "banner", id: None, json: (&newest.json[..]).into() })
    }

    /// Whether those who have not heard are told by themselves now.
    pub fn is_alone(&self, now: Mono) -> bool {
        self.alone_at.is_none_or(|at| at <= now)
    }

    /// JSON of what hangs on the wall.
    pub fn standing_json(&self, now: Mono) -> String {
        let mut json = Vec::new();
        event::write_banners(self.standing(now).map(|banner| &*banner.json), &mut json);
        String::from_utf8(json).expect("an event is JSON")
    }

    fn standing(&self, now: Mono) -> impl Iterator<Item = &Arc<SiteBanner>> {
        self.standing.iter().filter(move |s| now < s.over_at).map(|s| &s.banner)
    }

    /// The shard's list. Whether there is anything to be said, and how many banners found no place.
    fn take(&mut self, list: &SiteList, now: Mono, wall: Wall) -> u64 {
        let mut dropped = 0;
        let mut named = BTreeMap::new();
        for banner in &list.banners {
            if let Some(over_at) = self.named.remove(&banner.id) {
                named.insert(banner.id, over_at);
                continue;
            }
            let over_at = now + banner.until.since(wall.max(list.as_of));
            named.insert(banner.id, over_at);
            let standing = Standing { banner: banner.clone(), over_at };
            if self.listed {
                self.queue.push_back(Word { standing, ended: false });
            } else {
                // It stands since before anybody came to this worker.
                self.newest = self.newest.max(Some(banner.id));
                self.standing.push(standing);
            }
        }
        let gone = std::mem::replace(&mut self.named, named).into_iter().filter(|(_, over_at)| now < *over_at);
        for (id, _) in gone {
            self.queue.retain(|word| word.standing.banner.id != id);
            // Who has not heard it hears of its end alone.
            self.notices.iter_mut().filter(|n| n.id == id && !n.ended).for_each(|n| n.over_at = now);
            if let Some(at) = self.standing.iter().position(|s| s.banner.id == id) {
                self.queue.push_back(Word { standing: self.standing.remove(at), ended: true });
            }
        }
        self.listed = true;
        while self.queue.len() > QUEUE_MAX {
            self.queue.pop_front();
            dropped += 1;
        }
        dropped
    }

    /// Makes a notice of the next word, when its time has come. Returns how many were over before it.
    fn cry(&mut self, now: Mono) -> u64 {
        let mut over = 0;
        while now >= self.next_at
            && let Some(Word { standing, ended }) = self.queue.pop_front()
        {
            let Standing { banner, over_at } = &standing;
            if *over_at <= now {
                over += u64::from(!ended);
                continue;
            }
            let json = if ended { event::ended_banner(banner.id, banner.until) } else { banner.json.to_vec() };
            let out = [Out { kind: "banner", id: None, json: (&json[..]).into() }];
            let (web_socket, sse) = (frames::encode(Transport::WebSocket, &out), frames::encode(Transport::Sse, &out));
            self.notices.push_back(Notice {
                id: banner.id,
                ts: banner.ts,
                at: now,
                over_at: *over_at,
                ended,
                web_socket,
                sse,
                json,
            });
            if self.notices.len() > KEPT {
                self.notices.pop_front();
            }
            self.version = self.version.wrapping_add(1);
            self.standing.retain(|s| now < s.over_at);
            if !ended {
                self.newest = self.newest.max(Some(banner.id));
                self.standing.push(standing);
            }
            self.next_at = now + EVERY;
            // A round that still goes visits whom it has not visited with the newer one, and then all once more.
            self.alone_at = Some(now + ALONE_AFTER);
        }
        over
    }

    /// What one who heard up to `heard` is still to be told: the kept ones after it.
    fn missed(&self, heard: u16, now: Mono) -> impl Iterator<Item = &Notice> {
        let n = usize::from(self.version.wrapping_sub(heard)).min(self.notices.len());
        self.newest_words(now).filter(move |(i, _)| *i >= self.notices.len() - n).map(|(_, notice)| notice)
    }

    /// The kept ones that still stand, of each banner the last word alone, with their places.
    fn newest_words(&self, now: Mono) -> impl Iterator<Item = (usize, &Notice)> {
        let is_last = |i: usize, id: EventId| !self.notices.iter().skip(i + 1).any(|later| later.id == id);
        self.notices.iter().enumerate().filter(move |(i, notice)| now < notice.over_at && is_last(*i, notice.id))
    }

    /// What a poll's answer is to tell its caller: what it does not know of what hangs on the wall, and what ended since. Who calls
    /// on no known line may have seen what ended.
    pub fn since(&self, known: Known, now: Mono) -> impl Iterator<Item = Out<'_>> {
        let new = self.standing(now).filter(move |banner| known.newest.is_none_or(|newest| newest < banner.id));
        let ended = self
            .newest_words(now)
            .filter(move |(_, notice)| notice.ended && known.answered.is_none_or(|at| at < notice.at));
        let all = new.map(|banner| &*banner.json).chain(ended.map(|(_, notice)| &*notice.json));
        all.map(|json| Out { kind: "banner", id: None, json: json.into() })
    }

    /// Whether something is new to a caller that is not to wait for it.
    pub fn is_news(&self, known: Known, now: Mono) -> bool {
        let Some(newest) = self.notices.back() else { return false };
        let maybe = match known.answered {
            Some(at) => known.newest < self.newest || at < newest.at,
            // Who calls on no known line is told again what stands, but not woken for it: it would call again at once.
            None => known.called < newest.at,
        };
        maybe && self.is_alone(now) && self.since(known, now).next().is_some()
    }

    /// The newest banner that ever hung here: who was told it, was told all.
    pub fn newest(&self) -> Option<EventId> {
        self.newest
    }

    pub fn deadline(&self) -> Option<Mono> {
        let next = (!self.queue.is_empty()).then_some(self.next_at);
        next.into_iter().chain(self.alone_at).min()
    }

    pub fn goes_round(&self) -> bool {
        self.next_slot.is_some()
    }

    /// Tells a stream what it has not heard, in one write. Whether the socket is full or broken comes back.
    pub fn tell(&self, conn: &mut Conn, now: Mono) -> Option<(Sent, u64)> {
        let Kind::Viewer(viewer) = &mut conn.kind else { return None };
        if viewer.site == self.version || viewer.opening.is_some() || viewer.transport == Transport::Poll {
            return None;
        }
        let (heard, transport) = (viewer.site, viewer.transport);
        let n = self.missed(heard, now).count() as u64;
        if n == 0 {
            viewer.site = self.version;
            return None;
        }
        if conn.blocked || !conn.out.is_empty() {
            return None;
        }
        let mut bytes = Bytes::new();
        for notice in self.missed(heard, now) {
            let one = if transport == Transport::WebSocket { &notice.web_socket } else { &notice.sse };
            bytes = if bytes.is_empty() { one.clone() } else { [&bytes[..], &one[..]].concat().into() };
        }
        let sent = conn.try_send(&bytes, None);
        if matches!(sent, Sent::All | Sent::Some)
            && let Kind::Viewer(viewer) = &mut conn.kind
        {
            viewer.site = self.version;
            return Some((sent, n));
        }
        Some((sent, 0))
    }
}

impl Worker {
    pub(super) fn on_site(&mut self, list: &SiteList) {
        let dropped = self.site.take(list, self.now, self.wall);
        add(&self.shared.metrics.banners_dropped[BannerHop::Queue as usize], dropped);
        self.cry_banner();
        self.on_site_bans(&list.bans);
        self.on_access(&list.access);
        self.on_silent(&list.silent);
    }

    /// Gives out the next banner when its time has come, and starts the round when it is to go alone.
    pub(super) fn cry_banner(&mut self) {
        let over = self.site.cry(self.now);
        add(&self.shared.metrics.banners_dropped[BannerHop::Turn as usize], over);
        if self.site.alone_at.is_some_and(|at| at <= self.now) {
            self.site.alone_at = None;
            self.site.next_slot = Some(0);
        }
    }

    /// One slice of the round that tells banners to whom they did not ride.
    pub(super) fn walk_site(&mut self) {
        let Some(mut slot) = self.site.next_slot else { return };
        self.tick();
        let until = self.now + SLICE;
        let (mut told, mut frames, mut bytes) = (0, [0; 3], [0; 3]);
        let (mut broken, mut full) = (Vec::new(), Vec::new());
        let (mut visited, mut passed) = (0, 0);
        let end = self.conns.capacity();
        while slot < end {
            if visited >= CLOCK_EVERY || passed >= PASSED_EVERY {
                (visited, passed) = (0, 0);
                if clock::mono() >= until {
                    break;
                }
            }
            let at = slot;
            slot += 1;
            passed += 1;
            let Some(conn) = self.conns.get_mut(at) else { continue };
            let Kind::Viewer(viewer) = &conn.kind else { continue };
            let transport = viewer.transport;
            if transport == Transport::Poll {
                // An answer is made for its caller alone, the room's events with it: the clock is looked at after each.
                visited = CLOCK_EVERY;
                self.guarded(at, |w| w.answer_poll_if_due(at));
                continue;
            }
            let Some((sent, n)) = self.site.tell(conn, self.now) else { continue };
            visited += 1;
            told += n;
            frames[transport as usize] += n;
            bytes[transport as usize] += n * self.site.notices.back().map_or(0, |notice| notice.json.len() as u64);
            match sent {
                Sent::All => {}
                Sent::Some | Sent::Nothing => full.push(at),
                Sent::Broken => broken.push(at),
            }
        }
        let done = slot >= end;
        self.site.next_slot = (!done).then_some(slot);
        let metrics = &self.shared.metrics;
        add(&metrics.banners_told, told);
        for idx in 0..frames.len() {
            add(&metrics.frames[idx], frames[idx]);
            add(&metrics.bytes[idx], bytes[idx]);
        }
        if done && let Some(notice) = self.site.notices.back() {
            metrics.banner_delivery.observe(clock::wall().since(notice.ts));
        }
        for slot in broken {
            self.guarded(slot, |w| w.drop_conn(slot));
        }
        for slot in full {
            self.schedule_live(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use grandstand_core::ids::{Epoch, EventId, Seq};
    use grandstand_core::time::{Mono, Wall};
    use grandstand_wire::event;

    use super::{ALONE_AFTER, EVERY, KEPT, Known, QUEUE_MAX, Site};
    use crate::link::{SiteBanner, SiteList};

    const UNTIL: Wall = Wall(1_000_000);
    /// The same, by the clock of the worker that took it at its zero.
    const OVER: Mono = Mono(1_000_000_000);

    fn banner(n: u64, until: Wall) -> Arc<SiteBanner> {
        let id = EventId::at(Epoch::new(1).unwrap(), Seq::new(n).unwrap());
        let json = format!("{{\"type\":\"banner\",\"banner_id\":\"{n}\"}}").into_bytes().into_boxed_slice();
        Arc::new(SiteBanner { id, ts: Wall(0), until, json })
    }
    fn list(numbers: &[u64]) -> SiteList {
        let banners = numbers.iter().map(|n| banner(*n, UNTIL)).collect();
        SiteList { banners, ..SiteList::default() }
    }
    fn newest(site: &Site) -> String {
        String::from_utf8(site.notices.back().unwrap().json.clone()).unwrap()
    }

    #[test]
    fn what_stood_before_anybody_came_is_no_news_and_what_comes_later_is_told_one_a_second() {
        let mut site = Site::default();
        site.take(&list(&[1]), Mono(0), Wall(0));
        site.cry(Mono(0));
        assert_eq!((site.version(), site.standing_json(Mono(0)).matches("banner_id").count()), (0, 1));
        site.take(&list(&[1, 2, 3]), Mono(0), Wall(0));
        let start = Mono(5_000_000);
        site.cry(start);
        site.cry(start);
        assert_eq!((site.version(), newest(&site).contains("\"2\"")), (1, true));
        assert!(!site.is_alone(start) && site.is_alone(start + ALONE_AFTER));
        assert!(site.rides(0, start).is_some() && site.rides(1, start).is_none());
        assert_eq!(site.deadline(), Some(start + ALONE_AFTER), "before the next is due");
        site.cry(start + EVERY);
        assert_eq!((site.version(), newest(&site).contains("\"3\"")), (2, true));
        assert_eq!(site.missed(0, Mono(0)).count(), 2, "who heard neither is told both");
        // The same list again, as after a lost link, is nothing new.
        site.take(&list(&[1, 2, 3]), Mono(0), Wall(0));
        assert!(site.queue.is_empty());
    }

    #[test]
    fn one_taken_down_is_told_its_end_or_was_never_told() {
        let mut site = Site::default();
        site.take(&list(&[]), Mono(0), Wall(0));
        site.take(&list(&[1, 2]), Mono(0), Wall(0));
        site.cry(Mono(1));
        assert!(site.rides(0, Mono(2)).is_some());
        site.take(&list(&[]), Mono(2), Wall(0));
        assert!(site.rides(0, Mono(2)).is_none() && site.missed(0, Mono(2)).count() == 0, "nobody is told it any more");
        site.cry(Mono(1) + EVERY);
        let (id, text) = (banner(1, UNTIL).id.value(), newest(&site));
        assert!(text.contains(&format!("\"{id}\"")) && text.ends_with(",\"ended\":true}"), "{text}");
        assert!(site.queue.is_empty(), "the second was not told of");
        assert_eq!(site.standing_json(Mono(0)), "[]");
    }

    #[test]
    fn what_is_over_before_its_turn_is_counted_and_the_queue_and_the_kept_are_bounded() {
        let mut site = Site::default();
        site.take(&list(&[]), Mono(0), Wall(0));
        let mut many = list(&(1..=QUEUE_MAX as u64 + 3).collect::<Vec<_>>());
        assert_eq!(site.take(&many, Mono(0), Wall(0)), 3);
        let mut now = Mono(0);
        for _ in 0..KEPT + 4 {
            now = now + EVERY;
            site.cry(now);
        }
        assert_eq!((site.notices.len(), site.missed(0, Mono(0)).count()), (KEPT, KEPT));
        assert_eq!(site.missed(0, OVER).count(), 0, "nobody is told what is over");
        let left = site.queue.len() as u64;
        assert_eq!(site.cry(OVER), left);
        many.banners.clear();
        site.take(&many, OVER, UNTIL);
        assert!(site.queue.is_empty() && site.named.is_empty());
    }

    fn json_of(site: &Site, known: Known, now: Mono) -> Vec<String> {
        site.since(known, now).map(|out| String::from_utf8(out.json.into_owned()).unwrap()).collect()
    }

    #[test]
    fn a_poll_is_told_what_it_does_not_know_whichever_worker_told_it_the_rest() {
        let (mut here, mut there) = (Site::default(), Site::default());
        let start = Mono(5_000_000);
        for (site, at) in [(&mut here, start), (&mut there, start + Duration::from_millis(400))] {
            site.take(&list(&[]), Mono(0), Wall(0));
            site.take(&list(&[1, 2]), Mono(0), Wall(0));
            site.cry(at);
        }
        let stranger = Known { newest: None, answered: None, called: start + EVERY };
        assert_eq!(json_of(&here, stranger, start).len(), 1, "what hangs there");
        assert!(!here.is_news(stranger, start + EVERY), "but nobody is woken for what stood before");
        assert!(here.is_news(Known { called: Mono(1), ..stranger }, start + EVERY));
        // Answered by a worker that was not so far, it is owed the first by the other.
        let behind = Known { newest: None, answered: Some(start + EVERY), called: start + EVERY };
        assert!(here.is_news(behind, start + EVERY));
        let one = Known { newest: here.newest(), ..behind };
        assert!(!there.is_news(one, start + EVERY) && json_of(&there, one, start).is_empty(), "and not twice");
        there.cry(start + EVERY + EVERY);
        assert_eq!(json_of(&there, one, start).len(), 1);
        // Its end, once, too.
        there.take(&list(&[2]), start, Wall(0));
        let end = start + EVERY + EVERY + EVERY;
        there.cry(end);
        let both = Known { newest: there.newest(), answered: Some(start + EVERY + EVERY), called: end };
        let ended = event::ended_banner(banner(1, UNTIL).id, UNTIL);
        assert_eq!(json_of(&there, both, end), [String::from_utf8(ended).unwrap()]);
        assert!(json_of(&there, Known { answered: Some(end), ..both }, end).is_empty());
    }

    #[test]
    fn a_clock_that_is_set_back_leaves_no_banner_hanging() {
        let mut site = Site::default();
        // Made an hour after what this clock says now: it stands a thousand seconds, not an hour.
        let list =
            SiteList { as_of: Wall(3_600_000), banners: vec![banner(1, Wall(4_600_000))], ..SiteList::default() };
        site.take(&list, Mono(0), Wall(0));
        assert!(site.standing_json(Mono(OVER.0 - 1)).contains("\"1\""));
        assert_eq!(site.standing_json(OVER), "[]");
    }
}
