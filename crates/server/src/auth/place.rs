//! Where a viewer is, as an edge or a database of addresses says.
//!
//! Two witnesses, in this order: a header that a trusted proxy sets, and a database in MaxMind's format that the operator gives, asked
//! about the client's address. A header from anyone else is a claim about oneself and is not read; one that is there twice, or says
//! nothing of a region, leaves its viewer nowhere, and does not hand the question on to the database: the edge was asked and did not
//! know. Who is nowhere is refused wherever a room may not be shown somewhere.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use grandstand_core::regions::Region;
use maxminddb::{Reader, path};

use super::door::{self, Network};

/// What a gateway tells control of where a request's client is. A client's own header of the name goes no further.
pub const HEADER: &str = "x-grandstand-place";

/// Whether a header is one that gateways alone write.
pub fn is_own_word(name: &str) -> bool {
    name.get(..13).is_some_and(|start| start.eq_ignore_ascii_case("x-grandstand-"))
}

/// A database of every network on earth down to cities is about 70 MB.
const DATABASE_BYTES_MAX: u64 = 1 << 30;

#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("{0} cannot be read: {1}")]
    Read(PathBuf, #[source] std::io::Error),
    #[error("{0} is larger than 1 GiB")]
    TooLong(PathBuf),
    #[error("{0} is no database in MaxMind's format: {1}")]
    Malformed(PathBuf, String),
}

/// What says where somebody is; without any of it everybody is nowhere.
#[derive(Default)]
pub struct Places {
    /// Lower case.
    header: Option<String>,
    trusted: Vec<Network>,
    database: Option<Reader<Vec<u8>>>,
}

impl Places {
    /// `header` is taken from peers in `trusted` alone.
    /// Errors: the database cannot be read.
    pub fn new(header: Option<&str>, trusted: &[Network], database: Option<&Path>) -> Result<Places, Fault> {
        Ok(Places {
            header: header.map(str::to_ascii_lowercase),
            trusted: trusted.to_vec(),
            database: database.map(open).transpose()?,
        })
    }

    /// The header to be shown, when there is one.
    pub fn header(&self) -> Option<&str> {
        self.header.as_deref()
    }

    /// Where a client is whose request came from `peer`. `said`: every value of the header.
    pub fn place<'a>(&self, peer: IpAddr, client: IpAddr, mut said: impl Iterator<Item = &'a [u8]>) -> Option<Region> {
        if self.header.is_some()
            && door::is_trusted(peer, &self.trusted)
            && let Some(first) = said.next()
        {
            let alone = said.next().is_none();
            return std::str::from_utf8(first).ok().filter(|_| alone).and_then(|text| Region::parse(text.trim()));
        }
        self.look_up(client)
    }

    fn look_up(&self, client: IpAddr) -> Option<Region> {
        let found = self.database.as_ref()?.lookup(client).ok()?;
        let country: &str = found.decode_path(&path!["country", "iso_code"]).ok()??;
        // A database of countries has no parts.
        let part: Option<&str> = found.decode_path(&path!["subdivisions", 0, "iso_code"]).ok().flatten();
        part.and_then(|part| Region::parse(&format!("{country}-{part}"))).or_else(|| Region::parse(country))
    }
}

fn open(path: &Path) -> Result<Reader<Vec<u8>>, Fault> {
    let io = |e| Fault::Read(path.to_owned(), e);
    if std::fs::metadata(path).map_err(io)?.len() > DATABASE_BYTES_MAX {
        return Err(Fault::TooLong(path.to_owned()));
    }
    let bytes = std::fs::read(path).map_err(io)?;
    Reader::from_source(bytes).map_err(|e| Fault::Malformed(path.to_owned(), e.to_string()))
}
