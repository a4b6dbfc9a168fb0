//! JSON as this protocol allows it: a strict reader and a small writer.
//!
//! The reader is RFC 8259 less its ambiguities. Duplicate keys, a byte order mark, lone surrogate escapes, raw control
//! characters, bytes after the value and nesting deeper than [`DEPTH_MAX`] are faults, never guessed at. Numbers keep their
//! text, so that an integer is exact or refused: `1.0`, `1e3` and 2^64 are not integers. Work and memory are bounded by the
//! length of the input, which every caller bounds first.

use std::borrow::Cow;
use std::fmt;

use crate::limits;

/// Arrays and objects inside each other.
pub const DEPTH_MAX: usize = limits::JSON_DEPTH_MAX;

/// A parsed value that borrows from its text where it can.
#[derive(Clone, PartialEq, Debug)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    /// The number as it was written; grammar checked, value not.
    Number(&'a str),
    Text(Cow<'a, str>),
    Array(Vec<Value<'a>>),
    Object(Object<'a>),
}

/// Members in the order they came, no key twice.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Object<'a>(Vec<(Cow<'a, str>, Value<'a>)>);

/// Why a text is not JSON as this protocol allows it, and at which byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    pub rule: &'static str,
    pub at: usize,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {})", self.rule, self.at)
    }
}

impl<'a> Value<'a> {
    /// The value as an exact integer: digits only.
    /// Errors: `None` for a sign, a fraction, an exponent, another type, or above 2^64 - 1.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::Number(text) if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// Writes the value in one fixed form: no spaces, keys in byte order, strings escaped one way, numbers as written.
    pub fn write_canonical(&self, out: &mut Vec<u8>) {
        match self {
            Value::Null => out.extend_from_slice(b"null"),
            Value::Bool(true) => out.extend_from_slice(b"true"),
            Value::Bool(false) => out.extend_from_slice(b"false"),
            Value::Number(text) => out.extend_from_slice(text.as_bytes()),
            Value::Text(text) => write_str(text, out),
            Value::Array(items) => {
                out.push(b'[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    item.write_canonical(out);
                }
                out.push(b']');
            }
            Value::Object(object) => {
                let mut members: Vec<_> = object.0.iter().collect();
                members.sort_by(|a, b| a.0.cmp(&b.0));
                out.push(b'{');
                for (i, (key, value)) in members.into_iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    write_str(key, out);
                    out.push(b':');
                    value.write_canonical(out);
                }
                out.push(b'}');
            }
        }
    }
}

impl<'a> Object<'a> {
    /// The member's value; `None` when there is none or it is `null` (the protocol reads both as "not given").
    pub fn given(&self, key: &str) -> Option<&Value<'a>> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v).filter(|v| !v.is_null())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value<'a>)> {
        self.0.iter().map(|(k, v)| (&**k, v))
    }
}

/// Reads one JSON value that is the whole text.
///
/// Errors: the first rule broken and where.
pub fn parse(text: &str) -> Result<Value<'_>, Fault> {
    let mut reader = Reader { text, at: 0 };
    reader.space();
    let value = reader.value(0)?;
    reader.space();
    if reader.at < text.len() {
        return Err(reader.fault("nothing may follow the JSON value"));
    }
    Ok(value)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn fault(&self, rule: &'static str) -> Fault {
        Fault { rule, at: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value<'a>, Fault> {
        match self.peek() {
            Some(b'"') => self.string().map(Value::Text),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(_) => Err(self.fault("a JSON value starts here")),
            None => Err(self.fault("the JSON text ends too early")),
        }
    }

    fn word(&mut self, word: &'static str, value: Value<'a>) -> Result<Value<'a>, Fault> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(self.fault("a JSON value starts here"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<Value<'a>, Fault> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits()?,
            _ => return Err(self.fault("a number has digits")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.fault("a number has no leading zero"));
        }
        Ok(Value::Number(&self.text[start..self.at]))
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(self.fault("a number has digits")) } else { Ok(()) }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, Fault> {
        self.at += 1;
        let start = self.at;
        let bytes = self.text.as_bytes();
        loop {
            match bytes.get(self.at) {
                Some(b'"') => {
                    let plain = &self.text[start..self.at];
                    self.at += 1;
                    return Ok(Cow::Borrowed(plain));
                }
                Some(b'\\') => return self.escaped(start),
                Some(0..=0x1f) => return Err(self.fault("control characters in a string are escaped")),
                Some(_) => self.at += 1,
                None => return Err(self.fault("the JSON text ends too early")),
            }
        }
    }

    /// The rest of a string from its first escape on.
    fn escaped(&mut self, start: usize) -> Result<Cow<'a, str>, Fault> {
        let mut text = String::with_capacity(self.at - start + 16);
        text.push_str(&self.text[start..self.at]);
        loop {
            let run = self.at;
            while matches!(self.peek(), Some(b) if b != b'"' && b != b'\\' && b >= 0x20) {
                self.at += 1;
            }
            text.push_str(&self.text[run..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Cow::Owned(text));
                }
                Some(b'\\') => text.push(self.escape()?),
                Some(_) => return Err(self.fault("control characters in a string are escaped")),
                None => return Err(self.fault("the JSON text ends too early")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Fault> {
        self.at += 1;
        let kind = self.peek().ok_or_else(|| self.fault("the JSON text ends too early"))?;
        let plain = match kind {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return Err(self.fault("this escape does not exist")),
        };
        self.at += 1;
        Ok(plain)
    }

    fn unicode(&mut self) -> Result<char, Fault> {
        const LONE: &str = "a surrogate escape is one of a pair";
        let high = self.hex4()?;
        let code = match high {
            0xd800..0xdc00 => {
                if !self.text.as_bytes()[self.at..].starts_with(b"\\u") {
                    return Err(self.fault(LONE));
                }
                self.at += 1;
                let low = self.hex4()?;
                if !(0xdc00..0xe000).contains(&low) {
                    return Err(self.fault(LONE));
                }
                0x1_0000 + ((high - 0xd800) << 10 | (low - 0xdc00))
            }
            _ => high,
        };
        char::from_u32(code).ok_or_else(|| self.fault(LONE))
    }

    /// Four hexadecimal digits after the `u` that `at` points to.
    fn hex4(&mut self) -> Result<u32, Fault> {
        let digits = self.text.as_bytes().get(self.at + 1..self.at + 5);
        let digits = digits.filter(|d| d.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.ok_or_else(|| self.fault("a unicode escape has four hexadecimal digits"))?;
        let code = digits.iter().fold(0, |n, &d| n << 4 | char::from(d).to_digit(16).expect("checked above"));
        self.at += 5;
        Ok(code)
    }

    fn array(&mut self, depth: usize) -> Result<Value<'a>, Fault> {
        if depth >= DEPTH_MAX {
            return Err(self.fault("JSON is nested at most 16 deep"));
        }
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Array(items));
        }
        loop {
            self.space();
            items.push(self.value(depth + 1)?);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::Array(items));
                }
                Some(_) => return Err(self.fault("a comma or the array's end belongs here")),
                None => return Err(self.fault("the JSON text ends too early")),
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value<'a>, Fault> {
        if depth >= DEPTH_MAX {
            return Err(self.fault("JSON is nested at most 16 deep"));
        }
        self.at += 1;
        // The usual operation has up to five members.
        let mut members = Vec::with_capacity(6);
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(Object(members)));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.fault("an object's key belongs here"));
            }
            let key = self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.fault("a colon follows a key"));
            }
            self.at += 1;
            self.space();
            let value = self.value(depth + 1)?;
            members.push((key, value));
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    break;
                }
                Some(_) => return Err(self.fault("a comma or the object's end belongs here")),
                None => return Err(self.fault("the JSON text ends too early")),
            }
        }
        if repeats_a_key(&members) {
            return Err(self.fault("an object has each key once"));
        }
        Ok(Value::Object(Object(members)))
    }
}

/// Few members are compared pair by pair; many are sorted, so that a frame full of keys costs n log n, not n².
fn repeats_a_key(members: &[(Cow<'_, str>, Value<'_>)]) -> bool {
    if members.len() <= 12 {
        return members.iter().enumerate().any(|(i, (key, _))| members[..i].iter().any(|(k, _)| k == key));
    }
    let mut keys: Vec<&str> = members.iter().map(|(k, _)| &**k).collect();
    keys.sort_unstable();
    keys.windows(2).any(|pair| pair[0] == pair[1])
}

/// Writes one JSON object member by member into a buffer.
pub(crate) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> Writer<'a> {
    pub(crate) fn object(out: &'a mut Vec<u8>) -> Writer<'a> {
        out.push(b'{');
        Writer { out, first: true }
    }

    /// Starts an event: `{"type":"…","room_id":"…"`. A kind and a room id never need escaping.
    pub(crate) fn event(out: &'a mut Vec<u8>, kind: &str, room: Option<&grandstand_core::names::RoomId>) -> Writer<'a> {
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(kind.as_bytes());
        if let Some(room) = room {
            out.extend_from_slice(b"\",\"room_id\":\"");
            out.extend_from_slice(room.as_str().as_bytes());
        }
        out.push(b'"');
        Writer { out, first: false }
    }

    fn key(&mut self, key: &str) {
        self.out.extend_from_slice(if self.first { b"\"" } else { b",\"" });
        self.first = false;
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    pub(crate) fn text(&mut self, key: &str, text: &str) -> &mut Self {
        self.key(key);
        write_str(text, self.out);
        self
    }

    pub(crate) fn text_if(&mut self, key: &str, text: Option<&str>) -> &mut Self {
        if let Some(text) = text {
            self.text(key, text);
        }
        self
    }

    pub(crate) fn number(&mut self, key: &str, n: u64) -> &mut Self {
        self.key(key);
        write_u64(n, self.out);
        self
    }

    pub(crate) fn number_if(&mut self, key: &str, n: Option<u64>) -> &mut Self {
        if let Some(n) = n {
            self.number(key, n);
        }
        self
    }

    /// Written only when true: a flag that is absent is false.
    pub(crate) fn flag(&mut self, key: &str, on: bool) -> &mut Self {
        if on { self.bool(key, true) } else { self }
    }

    pub(crate) fn bool(&mut self, key: &str, value: bool) -> &mut Self {
        self.raw(key, if value { "true" } else { "false" })
    }

    pub(crate) fn time(&mut self, key: &str, at: grandstand_core::time::Wall) -> &mut Self {
        self.key(key);
        self.out.push(b'"');
        crate::stamp::write(at, self.out);
        self.out.push(b'"');
        self
    }

    /// A member that is JSON already.
    pub(crate) fn raw(&mut self, key: &str, json: &str) -> &mut Self {
        self.key(key);
        self.out.extend_from_slice(json.as_bytes());
        self
    }

    /// A member written by `inner`, which writes exactly one JSON value.
    pub(crate) fn with(&mut self, key: &str, inner: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        self.key(key);
        inner(self.out);
        self
    }

    pub(crate) fn numbers(&mut self, key: &str, numbers: impl IntoIterator<Item = u64>) -> &mut Self {
        self.list(key, numbers, write_u64)
    }

    pub(crate) fn list<T>(
        &mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        mut each: impl FnMut(T, &mut Vec<u8>),
    ) -> &mut Self {
        self.key(key);
        self.out.push(b'[');
        for (i, item) in items.into_iter().enumerate() {
            if i > 0 {
                self.out.push(b',');
            }
            each(item, self.out);
        }
        self.out.push(b']');
        self
    }

    pub(crate) fn end(&mut self) {
        self.out.push(b'}');
    }
}

/// Writes a JSON string, quotes included. U+2028 and U+2029 are escaped too: they end a line in some readers of JSON.
pub fn write_str(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut from = 0;
    for (i, &b) in bytes.iter().enumerate() {
        if b >= 0x20 && b != b'"' && b != b'\\' && b != 0xe2 {
            continue;
        }
        let (skip, escape): (usize, &[u8]) = match b {
            b'"' => (1, b"\\\""),
            b'\\' => (1, b"\\\\"),
            b'\n' => (1, b"\\n"),
            b'\r' => (1, b"\\r"),
            b'\t' => (1, b"\\t"),
            0xe2 if bytes[i + 1] == 0x80 && bytes[i + 2] == 0xa8 => (3, b"\\u2028"),
            0xe2 if bytes[i + 1] == 0x80 && bytes[i + 2] == 0xa9 => (3, b"\\u2029"),
            0xe2 => continue,
            _ => (1, b""),
        };
        out.extend_from_slice(&bytes[from..i]);
        if escape.is_empty() {
            out.extend_from_slice(b"\\u00");
            out.push(HEX[usize::from(b >> 4)]);
            out.push(HEX[usize::from(b & 15)]);
        } else {
            out.extend_from_slice(escape);
        }
        from = i + skip;
    }
    out.extend_from_slice(&bytes[from..]);
    out.push(b'"');
}

/// Writes a decimal number.
pub fn write_u64(mut n: u64, out: &mut Vec<u8>) {
    // 2^64 - 1 has 20 digits.
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};

    use super::{Value, parse, write_str, write_u64};

    fn rule(text: &str) -> &'static str {
        parse(text).expect_err(text).rule
    }

    #[test]
    fn ambiguous_json_is_refused_by_the_rule_it_breaks() {
        for text in [r#"{"a":1,"a":1}"#, r#"{"a":1,"\u0061":2}"#, r#"[{"x":{"k":1,"k":2}}]"#] {
            assert_eq!(rule(text), "an object has each key once", "{text}");
        }
        assert_eq!(rule("{} {}"), "nothing may follow the JSON value");
        assert_eq!(rule("\u{feff}{}"), "a JSON value starts here");
        assert_eq!(rule(r#""\ud800""#), "a surrogate escape is one of a pair");
        assert_eq!(rule(r#""\udc00""#), "a surrogate escape is one of a pair");
        assert_eq!(rule(r#""\ud800\ud800""#), "a surrogate escape is one of a pair");
        assert_eq!(rule("\"a\u{0}b\""), "control characters in a string are escaped");
        assert_eq!(rule("\"\\\u{0}\""), "this escape does not exist");
        for text in ["NaN", "Infinity", "+1", ".5", "tru", "'a'", "{a:1}", ""] {
            parse(text).expect_err(text);
        }
        for text in ["01", "-01", "00"] {
            assert_eq!(rule(text), "a number has no leading zero", "{text}");
        }
        for text in ["1.", "1e", "-", "1e+"] {
            assert_eq!(rule(text), "a number has digits", "{text}");
        }
        for text in ["{\"a\":1,}", "[1,]", "[1 2]", "{\"a\" 1}"] {
            parse(text).expect_err(text);
        }
    }

    #[test]
    fn many_keys_are_checked_as_strictly_as_few() {
        let members: Vec<String> = (0..2_000).map(|i| format!("\"k{i}\":0")).collect();
        assert!(parse(&format!("{{{}}}", members.join(","))).is_ok());
        assert_eq!(rule(&format!("{{{},\"k7\":1}}", members.join(","))), "an object has each key once");
    }

    #[test]
    fn nesting_stops_at_sixteen() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(parse(&nested(16)).is_ok());
        assert_eq!(rule(&nested(17)), "JSON is nested at most 16 deep");
        assert_eq!(rule(&"[".repeat(100_000)), "JSON is nested at most 16 deep");
        assert_eq!(rule(&"{\"a\":".repeat(100_000)), "JSON is nested at most 16 deep");
    }

    #[test]
    fn integers_are_exact_or_nothing() {
        let int = |t: &str| parse(t).unwrap().as_u64();
        assert_eq!(int("18446744073709551615"), Some(u64::MAX));
        for text in ["18446744073709551616", "1.0", "1e3", "-1", "-0", "\"1\"", "1e400"] {
            assert_eq!(int(text), None, "{text}");
        }
    }

    #[test]
    fn the_canonical_form_forgets_spelling_alone() {
        let form = |t: &str| {
            let mut out = Vec::new();
            parse(t).unwrap().write_canonical(&mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(form(r#" {"b":[1, 2],"\u0061":"\u0041\n"} "#), r#"{"a":"A\n","b":[1,2]}"#);
        assert_ne!(form("1"), form("1.0"));
    }

    proptest! {
        #[test]
        fn any_text_survives_being_written_and_read(text in any::<String>(), n in any::<u64>()) {
            let mut out = Vec::new();
            write_str(&text, &mut out);
            let json = String::from_utf8(out).unwrap();
            let one_line = !json.contains(['\u{2028}', '\u{2029}', '\n', '\r', '\0']);
            prop_assert!(one_line);
            let ours = parse(&json).unwrap();
            prop_assert_eq!(ours.as_str(), Some(&*text));
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
            let mut out = Vec::new();
            write_u64(n, &mut out);
            prop_assert_eq!(String::from_utf8(out).unwrap(), n.to_string());
        }

        #[test]
        fn what_is_accepted_is_json_to_others_too(text in "[\\[\\]{}:,\"\\\\a0-9.eE+ tfnu-]{0,40}") {
            if let Ok(value) = parse(&text) {
                let theirs: serde_json::Value = match serde_json::from_str(&text) {
                    Ok(theirs) => theirs,
                    // Numbers beyond a double are legal JSON that serde_json does not hold.
                    Err(e) if e.to_string().contains("number out of range") => return Ok(()),
                    Err(e) => panic!("{text}: {e}"),
                };
                prop_assert_eq!(matches!(value, Value::Object(_)), theirs.is_object());
            }
        }

        #[test]
        fn hostile_text_never_panics(text in any::<String>().prop_map(|t| format!("{{\"a\":\"\\u{t}"))) {
            let _ = parse(&text);
        }
    }
}
