//! Tells a torn end of a write-ahead log from damage inside it.
//!
//! SQLite reads a WAL up to the first frame that does not check and forgets the rest. After a power cut that is right: what
//! follows is at most the one commit that was being synced. After a flipped bit it would silently take back acknowledged
//! commits. Each frame's checksum goes on from the one before it, as stored, so frames behind a bad one can still be told: when
//! a second commit stands at or behind the bad frame, the first had been synced, and the file is damaged.
//!
//! The awkward case: damage in the very last commit looks the same as a torn end and is treated as one.
//! Source: the file format, sqlite.org/fileformat2.html, section 4.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::io_fault;
use crate::fault::Fault;

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// Errors: `Damaged`, naming the file, when commits that were synced can no longer be read. Must run before SQLite opens the
/// file, and holds only for a log that is synced at every commit.
pub(super) fn inspect(path: &Path) -> Result<(), Fault> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(io_fault(path, "opening it", e)),
    };
    match scan(&mut BufReader::with_capacity(1 << 20, file)) {
        Ok(None) => Ok(()),
        Ok(Some(what)) => Err(Fault::Damaged { file: path.into(), what }),
        Err(e) => Err(io_fault(path, "inspecting it", e)),
    }
}

fn scan(wal: &mut impl Read) -> io::Result<Option<String>> {
    let mut header = [0; HEADER];
    // A header that was never synced has no frame behind it that was.
    if !filled(wal, &mut header)? || header == [0; HEADER] {
        return Ok(None);
    }
    let big_endian = match word(&header, 0) {
        0x377f_0682 => false,
        0x377f_0683 => true,
        _ => return Ok(Some("its header is damaged".into())),
    };
    let page = word(&header, 8) as usize;
    let mut sum = checksum((0, 0), &header[..24], big_endian);
    if sum != (word(&header, 24), word(&header, 28)) || !(512..=65_536).contains(&page) {
        return Ok(Some("its header is damaged".into()));
    }
    let salt = header[16..24].to_vec();
    let mut frame = vec![0; FRAME_HEADER + page];
    let mut first_bad: Option<u64> = None;
    let mut commits_behind = 0;
    for n in 1_u64.. {
        if !filled(wal, &mut frame)? {
            break;
        }
        let stored = (word(&frame, 16), word(&frame, 20));
        let ours = frame[8..16] == salt[..];
        let commit = word(&frame, 4) != 0;
        let expected = checksum(checksum(sum, &frame[..8], big_endian), &frame[FRAME_HEADER..], big_endian);
        let good = ours && expected == stored;
        match first_bad {
            // Its mark counts even if its salt is what was damaged; frames of an earlier use of the file have no good one behind them.
            None if !good => (first_bad, commits_behind) = (Some(n), u32::from(commit)),
            Some(_) if good && commit => commits_behind += 1,
            _ => {}
        }
        sum = stored;
    }
    match first_bad {
        Some(n) if commits_behind >= 2 => Ok(Some(format!(
            "frame {n} does not match its checksum, and {commits_behind} commits would be lost with it"
        ))),
        _ => Ok(None),
    }
}

/// Whether the whole buffer was there to read.
fn filled(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn checksum((mut a, mut b): (u32, u32), bytes: &[u8], big_endian: bool) -> (u32, u32) {
    let read = |b: &[u8]| {
        let b = b.try_into().expect("four bytes");
        if big_endian { u32::from_be_bytes(b) } else { u32::from_le_bytes(b) }
    };
    for pair in bytes.chunks_exact(8) {
        a = a.wrapping_add(read(&pair[..4])).wrapping_add(b);
        b = b.wrapping_add(read(&pair[4..])).wrapping_add(a);
    }
    (a, b)
}
