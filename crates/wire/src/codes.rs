//! Every code a client may be given, each once: close codes, error codes, reasons of `rate_limited`. The server, the
//! clients and docs/protocol.md take names, statuses and delays from here.

/// What a client does after a close: the hundreds digit decides, so that a code it has never heard of is handled too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Range {
    /// 40xx: stops and tells the user.
    Stop,
    /// 41xx: waits `retry_after_ms` and a uniform draw from `spread_ms`, then resumes.
    Wait,
    /// 42xx: resumes at once; a second time within 10 s it waits as for 41xx.
    Resume,
    /// RFC 6455: 1000 to 2999, and whatever else has no meaning here. A client reconnects with backoff.
    Standard,
}

impl Range {
    pub fn of(code: u16) -> Range {
        match code {
            4000..4100 => Range::Stop,
            4100..4200 => Range::Wait,
            4200..4300 => Range::Resume,
            _ => Range::Standard,
        }
    }

    pub fn advice(self) -> &'static str {
        match self {
            Range::Stop => "stops, tells the user",
            Range::Wait => "waits `retry_after_ms` + uniform(0, `spread_ms`), resumes",
            Range::Resume => "resumes at once; a second time within 10 s as 41xx",
            Range::Standard => "as RFC 6455 says; reconnects with backoff",
        }
    }
}

macro_rules! codes {
    ($(#[$doc:meta])* $name:ident: $repr:ty { $($variant:ident = $row:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name { $($variant,)* }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            const fn row(self) -> $repr {
                match self { $($name::$variant => $row,)* }
            }
        }
    };
}

/// One row of the close table: code, reason word, default retry and spread in milliseconds, meaning.
type CloseRow = (u16, &'static str, Option<(u32, u32)>, &'static str);

codes! {
    /// Why a stream ended.
    CloseCode: CloseRow {
        BadRequest = (4000, "bad_request", None, "the room, the cursor or the first frame is malformed, or no `hello` came in time"),
        NotAllowed = (4003, "not_allowed", None, "the token is refused, the room is not among its rooms, or the user is banned"),
        NoRoom = (4004, "no_such_room", None, "there is no such room"),
        Displaced = (4009, "displaced", None, "a newer session of the same user took the place"),
        RoomEnded = (4010, "room_ended", None, "the room is closed for good"),
        Blackout = (4051, "blackout", None, "the room may not be shown where the viewer is"),
        TokenExpired = (4101, "token_expired", Some((0, 5_000)), "fetch a new token, then resume"),
        Drain = (4112, "drain", Some((500, 10_000)), "this gateway is going away"),
        TooMany = (4129, "too_many", Some((5_000, 10_000)), "too many streams, operations or connections"),
        ServerFault = (4150, "server_fault", Some((1_000, 10_000)), "the server failed; nothing acknowledged is lost"),
        NotReady = (4153, "not_ready", Some((1_000, 5_000)), "the server or the room's owner is starting"),
        SlowConsumer = (4200, "slow_consumer", Some((0, 1_000)), "a priority event could not be delivered in time"),
        Resync = (4201, "resync", Some((0, 2_000)), "the log moved to a new epoch"),
        Normal = (1000, "normal", None, "the client is done"),
        GoingAway = (1001, "going_away", None, "the client left the page"),
        ProtocolError = (1002, "protocol_error", None, "a frame broke RFC 6455"),
        NotUtf8 = (1007, "not_utf8", None, "a text frame is not UTF-8"),
        TooLarge = (1009, "too_large", None, "a client frame is above 16 KiB"),
    }
}

impl CloseCode {
    pub fn code(self) -> u16 {
        self.row().0
    }
    /// The `reason` of the `close` event and of the WebSocket close frame.
    pub fn reason(self) -> &'static str {
        self.row().1
    }
    /// Default `retry_after_ms` and `spread_ms`; `None` where a client must not come back by itself.
    pub fn retry(self) -> Option<(u32, u32)> {
        self.row().2
    }
    pub fn meaning(self) -> &'static str {
        self.row().3
    }
    pub fn range(self) -> Range {
        Range::of(self.code())
    }
    pub fn find(code: u16) -> Option<CloseCode> {
        CloseCode::ALL.iter().copied().find(|c| c.code() == code)
    }
}

/// One row of the error table: wire name, HTTP status, meaning.
type ErrorRow = (&'static str, u16, &'static str);

codes! {
    /// Why a request or an operation was refused: the closed list of `error`, and of `code` in problem documents.
    ErrorCode: ErrorRow {
        BadJson = ("bad_json", 400, "not JSON as the protocol allows it (duplicate keys, depth, encoding)"),
        BadOp = ("bad_op", 400, "unknown `op`, or a member is missing or has the wrong type"),
        BadRequest = ("bad_request", 400, "a header, a query or a body member is missing or malformed"),
        BadRoom = ("bad_room", 400, "not a room id"),
        BadCursor = ("bad_cursor", 400, "not an integer in [0, 2^53)"),
        BadText = ("bad_text", 422, "the text breaks a rule that is named in the message"),
        TooLong = ("too_long", 422, "the text is above 500 grapheme clusters or 2 000 bytes"),
        BadField = ("bad_field", 422, "a member has a value outside its rule; `fields` lists them"),
        UnknownKey = ("unknown_key", 422, "a setting of that name does not exist"),
        NotBuilt = ("not_built", 422, "this server does not have the feature yet, and does not pretend to"),
        UnknownMatch = ("unknown_match", 422, "no room shows this match"),
        BadReply = ("bad_reply", 422, "`reply_to` is beyond the newest event: nothing has that id yet"),
        NotUnique = ("not_unique", 422, "the user said the same within ten minutes, and the room takes nothing twice"),
        EmoteOnly = ("emote_only", 422, "the room takes nothing but emotes"),
        MembersOnly = ("members_only", 403, "only users with the room's badge of members may comment"),
        NoToken = ("no_token", 401, "credentials are needed here"),
        BadToken = ("bad_token", 401, "the token is malformed, expired or signed by an unknown key"),
        BadSignature = ("bad_signature", 401, "the provider's identity or signature does not hold"),
        NotAllowed = ("not_allowed", 403, "the role or the room's settings do not allow this"),
        BadOrigin = ("bad_origin", 403, "the page's origin, or the host, is not on the list"),
        Banned = ("banned", 403, "the user is banned in this room"),
        NoRoom = ("no_such_room", 404, "there is no such room"),
        NotFound = ("not_found", 404, "there is no such thing here"),
        Blackout = ("blackout", 451, "the room may not be shown where the viewer is"),
        BadMethod = ("bad_method", 405, "this route does not have the method"),
        IdempotencyConflict = ("idempotency_conflict", 409, "the same key came before with another content"),
        PayloadConflict = ("payload_conflict", 409, "the same revision came before with another payload"),
        RoomState = ("room_state", 409, "the room's state does not take this event"),
        LengthRequired = ("length_required", 411, "a body needs `Content-Length`; `Transfer-Encoding` is not taken"),
        StaleVersion = ("stale_version", 412, "the room changed since the version in `If-Match`"),
        TooLarge = ("too_large", 413, "the body is above its limit"),
        BadMedia = ("bad_media_type", 415, "the body must be `application/json`"),
        WrongListener = ("wrong_listener", 421, "this address serves one transport alone; what was asked for is elsewhere"),
        ModerationFailed = ("moderation_failed", 422, "moderation refused the text"),
        RateLimited = ("rate_limited", 429, "wait `retry_after_ms`; the reason says which rate"),
        TooMany = ("too_many", 429, "too many streams, rooms or followed users"),
        HeadTooLarge = ("head_too_large", 431, "the request's head is above 8 KiB or 64 headers"),
        ServerFault = ("server_fault", 500, "the server failed"),
        Overloaded = ("overloaded", 503, "the writer's queue is full, or memory is short; safe to retry with the same key"),
        NoSpace = ("no_space", 503, "the store is full; safe to retry with the same key"),
        NotReady = ("not_ready", 503, "the server is starting or stopping; safe to retry with the same key"),
        Unknown = ("outcome_unknown", 503, "it may have happened; retry with the same key alone"),
    }
}

impl ErrorCode {
    pub fn name(self) -> &'static str {
        self.row().0
    }
    pub fn status(self) -> u16 {
        self.row().1
    }
    pub fn meaning(self) -> &'static str {
        self.row().2
    }
    pub fn find(name: &str) -> Option<ErrorCode> {
        ErrorCode::ALL.iter().copied().find(|c| c.name() == name)
    }
}

codes! {
    /// Which rate refused a publish: `reason` of `rate_limited`.
    RateReason: (&'static str, &'static str) {
        SlowMode = ("slow_mode", "the room's slow mode: one comment in so many seconds"),
        UserRate = ("user_rate", "the user's rate"),
        RoomRate = ("room_rate", "the room's rate"),
        IpRate = ("ip_rate", "the rate of the network address"),
    }
}

impl RateReason {
    pub fn name(self) -> &'static str {
        self.row().0
    }
    pub fn meaning(self) -> &'static str {
        self.row().1
    }
    pub fn find(name: &str) -> Option<RateReason> {
        RateReason::ALL.iter().copied().find(|r| r.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{CloseCode, ErrorCode, Range, RateReason};

    #[test]
    fn every_code_and_name_is_used_once() {
        let codes: BTreeSet<u16> = CloseCode::ALL.iter().map(|c| c.code()).collect();
        assert_eq!(codes.len(), CloseCode::ALL.len());
        let names: BTreeSet<&str> =
            ErrorCode::ALL.iter().map(|c| c.name()).chain(RateReason::ALL.iter().map(|r| r.name())).collect();
        assert_eq!(names.len(), ErrorCode::ALL.len() + RateReason::ALL.len());
    }

    #[test]
    fn every_refusal_of_the_rules_has_a_row() {
        for (code, name) in grandstand_core::reject::Code::ALL {
            let found = if code.is_rate() { RateReason::find(name).is_some() } else { ErrorCode::find(name).is_some() };
            assert!(found, "{name}");
        }
    }

    #[test]
    fn a_client_comes_back_by_itself_exactly_where_a_delay_is_given() {
        for code in CloseCode::ALL {
            let comes_back = matches!(code.range(), Range::Wait | Range::Resume);
            assert_eq!(code.retry().is_some(), comes_back, "{code:?}");
            assert_eq!(CloseCode::find(code.code()), Some(*code));
        }
    }

    #[test]
    fn an_unknown_code_still_has_a_range() {
        assert_eq!(Range::of(4077), Range::Stop);
        assert_eq!(Range::of(4199), Range::Wait);
        assert_eq!(Range::of(4299), Range::Resume);
        assert_eq!(Range::of(4300), Range::Standard);
        assert_eq!(Range::of(1006), Range::Standard);
    }
}
