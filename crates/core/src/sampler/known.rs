//! Whom a comment speaks to: the authors that a room has heard of lately.
//!
//! A comment that answers somebody, or names them with `@`, is for that person when they are here. Who has said something in the
//! last five to ten minutes counts as here: the owner sees comments, not sockets.
//!
//! It promises fixed memory. The awkward case is two people of one name: then the name means nobody.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::fold::fold;
use crate::hash::Seeded;
use crate::ids::EventId;
use crate::names::UserId;
use crate::record::Comment;
use crate::time::Mono;

/// Comments that were shown and may still be answered: four minutes of 16 a second.
const ANSWERABLE_MAX: usize = 4_096;
/// Names of one generation; two are kept.
const NAMES_MAX: usize = 32_768;
const GENERATION: Duration = Duration::from_secs(300);
/// Words of one comment that are looked up.
const MENTIONS_MAX: usize = 4;

type Names = HashMap<Box<str>, Option<UserId>, Seeded>;

/// The people of one room.
#[derive(Debug)]
pub struct Known {
    authors: HashMap<EventId, UserId, Seeded>,
    order: VecDeque<EventId>,
    /// `None`: more than one has the name.
    names: Names,
    before: Names,
    since: Mono,
}

impl Known {
    pub fn new(hasher: Seeded, now: Mono) -> Known {
        Known {
            authors: HashMap::with_hasher(hasher),
            order: VecDeque::new(),
            names: HashMap::with_hasher(hasher),
            before: HashMap::with_hasher(hasher),
            since: now,
        }
    }

    /// Somebody said something, shown or not.
    pub fn said(&mut self, user: &UserId, display: &str, now: Mono) {
        if self.names.len() >= NAMES_MAX || now.since(self.since) >= GENERATION {
            self.before = std::mem::replace(&mut self.names, HashMap::with_hasher(*self.before.hasher()));
            self.since = now;
        }
        let known = self.names.entry(fold(display)).or_insert_with(|| Some(user.clone()));
        if known.as_ref().is_some_and(|other| other != user) {
            *known = None;
        }
    }

    /// This event was shown and may be answered.
    pub fn shown(&mut self, id: EventId, user: &UserId) {
        self.authors.insert(id, user.clone());
        self.order.push_back(id);
        if self.order.len() > ANSWERABLE_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.authors.remove(&oldest);
        }
    }

    /// This user is nobody here any more.
    pub fn forget(&mut self, user: &UserId) {
        self.authors.retain(|_, author| author != user);
        for names in [&mut self.names, &mut self.before] {
            names.retain(|_, whose| whose.as_ref() != Some(user));
        }
    }

    /// Whom the comment answers or names, if that person is here.
    pub fn addressee(&self, comment: &Comment) -> Option<UserId> {
        let answered = comment.reply_to.and_then(|id| self.authors.get(&id)).cloned();
        answered.or_else(|| {
            let mentions = comment.text.split('@').skip(1).take(MENTIONS_MAX);
            mentions.filter_map(|rest| rest.split(|c: char| c.is_whitespace() || ",.:;!?".contains(c)).next()).find_map(
                |name| {
                    let name = fold(name);
                    let ours = self.names.get(&name).or_else(|| self.before.get(&name));
                    ours.cloned().flatten()
                },
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{GENERATION, Known};
    use crate::hash::Seeded;
    use crate::ids::EventId;
    use crate::names::UserId;
    use crate::record::Comment;
    use crate::time::Mono;

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }
    fn id(n: u64) -> EventId {
        EventId::new(1 << 33 | n).unwrap()
    }
    fn comment(text: &str, reply_to: Option<EventId>) -> Comment {
        Comment {
            display: "x".into(),
            badges: [].into(),
            text: text.into(),
            reply_to,
            won: None,
            rule: None,
            shadowed: false,
        }
    }
    fn known() -> Known {
        let mut known = Known::new(Seeded(1), Mono(0));
        known.said(&user("u1"), "Ada", Mono(0));
        known.said(&user("u2"), "Grace", Mono(0));
        known.shown(id(7), &user("u2"));
        known
    }

    #[test]
    fn an_answer_is_for_the_author_and_a_mention_for_who_is_named() {
        let known = known();
        assert_eq!(known.addressee(&comment("@Ada yes", Some(id(7)))), Some(user("u2")));
        assert_eq!(known.addressee(&comment("what do you think, @ADA?", None)), Some(user("u1")));
        assert_eq!(known.addressee(&comment("@nobody @grace: hi", Some(id(8)))), Some(user("u2")));
        assert_eq!(known.addressee(&comment("Ada", None)), None);
        assert_eq!(known.addressee(&comment("@", None)), None);
    }

    #[test]
    fn a_name_that_two_have_means_nobody() {
        let mut known = known();
        known.said(&user("u3"), "ada", Mono(1));
        assert_eq!(known.addressee(&comment("@ada", None)), None);
    }

    #[test]
    fn who_has_long_been_silent_is_not_here() {
        let mut known = known();
        let later = Mono(0) + GENERATION;
        known.said(&user("u3"), "Joan", later);
        assert_eq!(known.addressee(&comment("@ada", None)), Some(user("u1")), "one generation is kept");
        known.said(&user("u3"), "Joan", later + GENERATION);
        assert_eq!(known.addressee(&comment("@ada", None)), None);
        assert_eq!(known.addressee(&comment("@joan", None)), Some(user("u3")));
    }
}
