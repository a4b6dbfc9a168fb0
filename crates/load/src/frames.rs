//! Cuts what a server sends into texts: WebSocket frames, SSE blocks, bodies of long-polls.
//!
//! Each reader takes the unread bytes of a connection and gives the next whole text as a slice of them, so nothing is
//! copied. It is strict where the server promises something: final, unmasked text frames; a length on every HTTP answer.

/// What stands at the front of a connection's unread bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Cut<'a> {
    /// Not whole yet.
    More,
    /// A text to read, and how many bytes it took with its wrapping.
    Text(&'a [u8], usize),
    /// A text that is still compressed.
    Deflated(&'a [u8], usize),
    Ping(&'a [u8], usize),
    /// A WebSocket close frame.
    Close(Option<u16>, usize),
    /// Nothing to read in these bytes: a keepalive, a pong.
    Nothing(usize),
    /// The server broke the protocol.
    Fault(&'static str),
}

/// The largest text a server sends: a catch-up page.
const TEXT_BYTES_MAX: usize = 16 << 20;

pub fn websocket(bytes: &[u8]) -> Cut<'_> {
    let [first, second, ..] = *bytes else { return Cut::More };
    if second & 0x80 != 0 {
        return Cut::Fault("a masked frame from the server");
    }
    let (len, head) = match second & 0x7f {
        126 => match bytes.get(2..4) {
            Some(b) => (usize::from(u16::from_be_bytes([b[0], b[1]])), 4),
            None => return Cut::More,
        },
        127 => match bytes.get(2..10).and_then(|b| b.try_into().ok()) {
            Some(b) => (u64::from_be_bytes(b) as usize, 10),
            None => return Cut::More,
        },
        short => (usize::from(short), 2),
    };
    if len > TEXT_BYTES_MAX {
        return Cut::Fault("a frame that long");
    }
    let Some(body) = bytes.get(head..head + len) else { return Cut::More };
    let used = head + len;
    match first {
        0x81 => Cut::Text(body, used),
        0xc1 => Cut::Deflated(body, used),
        0x89 => Cut::Ping(body, used),
        0x8a => Cut::Nothing(used),
        0x88 => Cut::Close(body.get(..2).map(|b| u16::from_be_bytes([b[0], b[1]])), used),
        _ => Cut::Fault("a fragment or an unknown frame"),
    }
}

/// One block of an event stream, up to its empty line. The server writes `data:` as one line and ends lines with LF.
pub fn sse(bytes: &[u8]) -> Cut<'_> {
    let Some(end) = bytes.windows(2).position(|w| w == b"\n\n") else {
        return if bytes.len() > TEXT_BYTES_MAX { Cut::Fault("an event that long") } else { Cut::More };
    };
    let block = &bytes[..end];
    let data = block.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"data: "));
    match data {
        Some(data) => Cut::Text(data, end + 2),
        None => Cut::Nothing(end + 2),
    }
}

/// One chunk of a chunked body.
pub fn chunk(bytes: &[u8]) -> Cut<'_> {
    let Some(end) = bytes.windows(2).position(|w| w == b"\r\n") else {
        return if bytes.len() > 32 { Cut::Fault("a malformed chunk") } else { Cut::More };
    };
    let size = std::str::from_utf8(&bytes[..end]).ok().and_then(|t| usize::from_str_radix(t, 16).ok());
    match size {
        None => Cut::Fault("a malformed chunk"),
        Some(size) if size > TEXT_BYTES_MAX => Cut::Fault("a chunk that long"),
        Some(size) => match bytes.get(end + 2..end + 4 + size) {
            None => Cut::More,
            Some(body) => Cut::Text(&body[..size], end + 4 + size),
        },
    }
}

#[cfg(test)]
mod tests {
    use grandstand_wire::ws::{Opcode, close_body, write_frame};

    use super::{Cut, chunk, sse, websocket};

    #[test]
    fn frames_of_the_server_are_cut_at_every_length() {
        for len in [0, 1, 125, 126, 65_535, 65_536] {
            let body = vec![b'a'; len];
            let mut bytes = Vec::new();
            write_frame(Opcode::Text, &body, &mut bytes);
            let used = bytes.len();
            for short in [0, 1, used - 1] {
                assert_eq!(websocket(&bytes[..short.min(used - 1)]), Cut::More);
            }
            bytes.extend_from_slice(b"next");
            assert_eq!(websocket(&bytes), Cut::Text(&body, used));
        }
        let mut bytes = Vec::new();
        write_frame(Opcode::Close, &close_body(4112, "drain"), &mut bytes);
        assert_eq!(websocket(&bytes), Cut::Close(Some(4112), bytes.len()));
        assert!(matches!(websocket(&[0x01, 1, b'a']), Cut::Fault(_)));
        assert!(matches!(websocket(&[0x81, 0x81, 0, 0, 0, 0, 1]), Cut::Fault(_)));
    }

    #[test]
    fn event_streams_are_cut_at_empty_lines() {
        assert_eq!(sse(b"event: comment\nid: 7\ndata: {}\n\nrest"), Cut::Text(b"{}", 31));
        assert_eq!(sse(b": keepalive\n\n"), Cut::Nothing(13));
        assert_eq!(sse(b"event: comment\ndata: {}\n"), Cut::More);
    }

    #[test]
    fn chunks_are_cut_with_their_line_ends() {
        assert_eq!(chunk(b"3\r\nabc\r\n0\r\n\r\n"), Cut::Text(b"abc", 8));
        assert_eq!(chunk(b"3\r\nab"), Cut::More);
        assert!(matches!(chunk(b"zz\r\n"), Cut::Fault(_)));
    }
}
