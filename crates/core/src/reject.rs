//! A refusal as a client is told it: a code of a closed list, a sentence, and how long to wait where waiting helps.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// Every code a refusal may carry; the names are the contract's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Code {
    BadJson,
    BadOp,
    BadRoom,
    BadText,
    TooLong,
    /// A field breaks its rule; which ones is in `fields`.
    BadField,
    NotAllowed,
    Banned,
    IdempotencyConflict,
    Overloaded,
    NoSpace,
    NotReady,
    NoRoom,
    NoEvent,
    RoomState,
    UnknownMatch,
    PayloadConflict,
    /// The version the change was made against is not the newest.
    Stale,
    ModerationFailed,
    /// The four reasons of `rate_limited`.
    SlowMode,
    UserRate,
    RoomRate,
    IpRate,
    /// What a room asks of a comment.
    NotUnique,
    EmoteOnly,
    MembersOnly,
}

impl Code {
    pub const ALL: [(Code, &'static str); 26] = [
        (Code::BadJson, "bad_json"),
        (Code::BadOp, "bad_op"),
        (Code::BadRoom, "bad_room"),
        (Code::BadText, "bad_text"),
        (Code::TooLong, "too_long"),
        (Code::BadField, "bad_field"),
        (Code::NotAllowed, "not_allowed"),
        (Code::Banned, "banned"),
        (Code::IdempotencyConflict, "idempotency_conflict"),
        (Code::Overloaded, "overloaded"),
        (Code::NoSpace, "no_space"),
        (Code::NotReady, "not_ready"),
        (Code::NoRoom, "no_such_room"),
        (Code::NoEvent, "bad_reply"),
        (Code::RoomState, "room_state"),
        (Code::UnknownMatch, "unknown_match"),
        (Code::PayloadConflict, "payload_conflict"),
        (Code::Stale, "stale_version"),
        (Code::ModerationFailed, "moderation_failed"),
        (Code::SlowMode, "slow_mode"),
        (Code::UserRate, "user_rate"),
        (Code::RoomRate, "room_rate"),
        (Code::IpRate, "ip_rate"),
        (Code::NotUnique, "not_unique"),
        (Code::EmoteOnly, "emote_only"),
        (Code::MembersOnly, "members_only"),
    ];

    pub fn name(self) -> &'static str {
        Code::ALL[self as usize].1
    }
    pub fn parse(name: &str) -> Option<Code> {
        Code::ALL.iter().find(|(_, n)| *n == name).map(|(c, _)| *c)
    }
    /// Told as `rate_limited` with this code as the reason, not as `error`.
    pub fn is_rate(self) -> bool {
        matches!(self, Code::SlowMode | Code::UserRate | Code::RoomRate | Code::IpRate)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reject {
    pub code: Code,
    pub message: Cow<'static, str>,
    /// Waiting this long may help; `None` when it will not.
    pub retry_after: Option<Duration>,
    /// Field and what is wrong with it, for `bad_field` and its kin.
    pub fields: Vec<(String, String)>,
}

impl Reject {
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Reject {
        Reject { code, message: message.into(), retry_after: None, fields: Vec::new() }
    }
    pub fn after(code: Code, message: impl Into<Cow<'static, str>>, wait: Duration) -> Reject {
        Reject { code, message: message.into(), retry_after: Some(wait), fields: Vec::new() }
    }
    pub fn fields(code: Code, message: impl Into<Cow<'static, str>>, fields: Vec<(String, String)>) -> Reject {
        Reject { code, message: message.into(), retry_after: None, fields }
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn every_code_has_its_own_place_and_name() {
        for (i, (code, name)) in Code::ALL.into_iter().enumerate() {
            assert_eq!(code as usize, i);
            assert_eq!(Code::parse(name), Some(code));
        }
    }
}
