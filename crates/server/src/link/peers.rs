//! What workers of one gateway process say to those of another, and its way there.
//!
//! The shard's process is the exchange: it knows every link, reads no more of such mail than whom it is for, and keeps nothing
//! for a process that is away. Whoever asked has a deadline of its own. The awkward case is a process that ended and came
//! back: it has the same number, so what is said names connections by numbers drawn by chance as well.

use std::sync::Arc;

use super::codec::{Down, Up};
use super::host::{Host, Link};
use super::hub::Hub;
use super::{Full, ToWorker, WorkerId};

/// For whom mail of one gateway process to another is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    Worker(WorkerId),
    /// The first worker of every other process.
    Others,
}

impl Hub {
    /// Sends mail to workers of other processes. Errors: the shard's process is away, or too much waits for it.
    #[expect(clippy::result_large_err, reason = "the item itself comes back, as from a mailbox")]
    pub(super) fn pass(&self, to: To, mail: ToWorker) -> Result<(), Full<ToWorker>> {
        let up = Up::Pass { to, mail };
        match (self.ask_raw(&up), up) {
            (Err(_), Up::Pass { mail, .. }) => Err(Full(mail)),
            _ => Ok(()),
        }
    }
}

impl Host {
    /// Passes mail on from the process of `from`. What finds no place is lost.
    pub(super) fn pass(&self, from: &Arc<Link>, to: To, mail: ToWorker) {
        match to {
            To::Worker(worker) => match self.all().into_iter().find(|link| link.own(worker).is_ok()) {
                Some(link) => drop(link.put(Down::Mail(worker, mail))),
                None => {
                    // Nobody can have such a stream.
                    if let ToWorker::Renew { reply, request, .. } = mail {
                        let mail = ToWorker::Renewed { conn: reply, request, taken: None };
                        drop(from.put(Down::Mail(reply.worker, mail)));
                    }
                }
            },
            To::Others => {
                let ToWorker::EndLine { line } = mail else { return };
                for link in self.all().into_iter().filter(|link| !Arc::ptr_eq(link, from)) {
                    drop(link.put(Down::Mail(link.first(), ToWorker::EndLine { line })));
                }
            }
        }
    }
}
