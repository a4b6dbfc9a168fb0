//! The three ways a write can go wrong, never mixed, and what a read may meet.

use std::error::Error;
use std::path::PathBuf;

use grandstand_core::ids::Position;

/// How a write ended that did not return `Ok`. The kind decides what the caller may do next.
#[derive(Debug, thiserror::Error)]
pub enum WriteFault {
    /// Certainly not durable, and not because of a mishap: the same write is refused again until something else changes.
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
    /// Certainly not durable. The same records with the same ids may be written again.
    #[error("failed, nothing was written: {0}")]
    Failed(#[source] Fault),
    /// May be durable, wholly or (on a log that is not transactional) up to any record of it. The handle is of no more use:
    /// the owner ends, and whoever comes next reads the log to learn what happened.
    #[error("the outcome is unknown: {0}")]
    Unknown(#[source] Fault),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The size limit of the store, of the file or of the disk is reached. Room made or a limit raised heals it.
    #[error("no space left for the store")]
    NoSpace,
    /// The log already goes on from `head`: the writer was overtaken (a zombie) or repeats itself.
    #[error("the log already stands at {head}; {first} was refused")]
    Stale { head: Position, first: Position },
    /// A room is only replaced by a higher version of itself.
    #[error("version {given} does not follow the stored version {stored}")]
    OldVersion { stored: u64, given: u64 },
}

/// What the world did to us while we were reading, opening or writing.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// What was written is not what is read. Never repaired, never skipped: somebody has to look.
    #[error("{}: {what}", file.display())]
    Damaged { file: PathBuf, what: String },
    #[error("{} while {doing}: {source}", file.display())]
    Io { doing: &'static str, file: PathBuf, source: Box<dyn Error + Send + Sync> },
    /// An earlier write ended as unknown; this handle writes no more.
    #[error("{}: an earlier write ended with an unknown outcome", file.display())]
    Poisoned { file: PathBuf },
    /// Made by a fault-injecting wrapper.
    #[error("injected: {0}")]
    Injected(&'static str),
}

impl WriteFault {
    /// Whether nothing of the write can ever be seen by a reader.
    pub fn certainly_not_durable(&self) -> bool {
        !matches!(self, WriteFault::Unknown(_))
    }
}
