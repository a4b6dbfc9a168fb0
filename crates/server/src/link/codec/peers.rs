//! Bytes of what gateway processes say to one another.

use super::super::ToWorker;
use super::super::peers::To;
use super::{Fault, Read, Reader, Writer};

/// Tags of mail, behind those of what the shard says.
const RENEW: u8 = 32;
const RENEWED: u8 = 33;
const END_LINE: u8 = 34;

impl Writer<'_> {
    pub(super) fn pass(&mut self, to: To, mail: &ToWorker) {
        match to {
            To::Others => self.u8(0),
            To::Worker(worker) => {
                self.u8(1);
                self.worker(worker);
            }
        }
        self.peer(mail);
    }

    pub(super) fn peer(&mut self, mail: &ToWorker) {
        match mail {
            ToWorker::Renew { conn, nonce, room, token, reply, request } => {
                self.u8(RENEW);
                self.conn(*conn);
                self.u64(*nonce);
                self.text(room.as_str());
                self.text(token);
                self.conn(*reply);
                self.u64(*request);
            }
            ToWorker::Renewed { conn, request, taken } => {
                self.u8(RENEWED);
                self.conn(*conn);
                self.u64(*request);
                self.opt(taken.as_ref(), |w, taken| w.flag(*taken));
            }
            ToWorker::EndLine { line } => {
                self.u8(END_LINE);
                self.u64(*line);
            }
            _ => unreachable!("gateway processes say nothing else to one another"),
        }
    }
}

impl Reader<'_> {
    pub(super) fn pass(&mut self) -> Read<(To, ToWorker)> {
        let to = match self.u8()? {
            0 => To::Others,
            1 => To::Worker(self.worker()?),
            _ => return Err(Fault::Field),
        };
        let tag = self.u8()?;
        Ok((to, self.peer(tag)?))
    }

    pub(super) fn peer(&mut self, tag: u8) -> Read<ToWorker> {
        Ok(match tag {
            RENEW => ToWorker::Renew {
                conn: self.conn()?,
                nonce: self.u64()?,
                room: self.room()?,
                token: self.text()?.into(),
                reply: self.conn()?,
                request: self.u64()?,
            },
            RENEWED => ToWorker::Renewed { conn: self.conn()?, request: self.u64()?, taken: self.opt(Reader::flag)? },
            END_LINE => ToWorker::EndLine { line: self.u64()? },
            _ => return Err(Fault::Field),
        })
    }
}
