//! Names from outside, each checked once where it enters and trusted afterwards.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $check:expr, $rule:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// What a value must be, as told to a client that broke it.
            pub const RULE: &'static str = $rule;

            /// Errors: `None` when the text breaks [`Self::RULE`].
            pub fn parse(text: &str) -> Option<$name> {
                let check: fn(&str) -> bool = $check;
                check(text).then(|| $name(text.into()))
            }
            pub fn as_str(&self) -> &str {
                &self.0
            }
            /// The same text, held together with this name.
            pub fn shared(&self) -> Arc<str> {
                self.0.clone()
            }
        }

        // Equal and hashed as the text is, so that a table is searched without making a name.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

name!(
    /// A room's name. Upper case is refused, not folded.
    RoomId,
    |t| {
        let ok = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let mut bytes = t.bytes();
        t.len() <= 128
            && bytes.next().is_some_and(ok)
            && bytes.all(|b| ok(b) || matches!(b, b':' | b'_' | b'.' | b'-'))
    },
    "a room id is 1 to 128 of a-z 0-9 : _ . - and starts with a letter or digit"
);

name!(
    /// A user, from the token's `sub`, never from the client. 1 to 64 bytes, no control characters.
    UserId,
    |t| (1..=64).contains(&t.len()) && !t.chars().any(char::is_control),
    "a user id is 1 to 64 bytes without control characters"
);

name!(
    /// A client's own key for one publish; unique per (room, user) for 10 minutes.
    ClientMsgId,
    |t| (1..=64).contains(&t.len()) && t.bytes().all(|b| (0x20..0x7f).contains(&b)),
    "client_msg_id is 1 to 64 printable ASCII characters"
);

name!(
    /// A match, a provider or a provider's event: 1 to 128 bytes, no control characters.
    Key,
    |t| (1..=128).contains(&t.len()) && !t.chars().any(char::is_control),
    "an id is 1 to 128 bytes without control characters"
);

name!(
    /// What a like is: a short word of a closed alphabet, so that it can be a key of JSON and a label.
    LikeKind,
    |t| {
        (1..=16).contains(&t.len())
            && t.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
            && t.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    },
    "a kind of like is 1 to 16 of a-z 0-9 _ and starts with a letter"
);

impl LikeKind {
    /// The kind of a like that names none.
    pub fn plain() -> LikeKind {
        LikeKind("like".into())
    }
    pub fn is_plain(&self) -> bool {
        self.as_str() == "like"
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientMsgId, LikeKind, RoomId, UserId};

    #[test]
    fn kinds_of_likes_are_short_words() {
        for good in ["like", "a", "heart_2", &"x".repeat(16)] {
            assert!(LikeKind::parse(good).is_some(), "{good:?}");
        }
        for bad in ["", "Like", "2x", "_a", "a b", "a\"", "é", &"x".repeat(17)] {
            assert!(LikeKind::parse(bad).is_none(), "{bad:?}");
        }
        assert_eq!(LikeKind::parse(LikeKind::plain().as_str()), Some(LikeKind::plain()));
    }

    #[test]
    fn room_ids_are_a_closed_alphabet() {
        for good in ["a", "0", "match:2022-final", "a.b_c-d", &"x".repeat(128)] {
            assert!(RoomId::parse(good).is_some(), "{good:?}");
        }
        for bad in ["", "A", "-a", ":a", "a/b", "a b", "a%2f", "é", "{a}", "a\0", &"x".repeat(129)] {
            assert!(RoomId::parse(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn user_ids_and_keys_are_bounded() {
        assert!(UserId::parse(&"u".repeat(64)).is_some());
        assert!(UserId::parse(&"u".repeat(65)).is_none());
        assert!(ClientMsgId::parse("a b").is_some());
        assert!(ClientMsgId::parse("é").is_none());
        assert!(ClientMsgId::parse("").is_none());
    }
}
