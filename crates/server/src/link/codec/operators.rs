//! Bytes of what operators ask of gateways, and of how limits are shared out.

use grandstand_core::admission::Limit;
use grandstand_core::bundles::{Bundle, LIMITED};
use grandstand_core::places;
use grandstand_core::time::Wall;

use super::{Fault, Order, Ordered, Read, Reader, Share, Writer};
use crate::admission::Change;
use crate::shedding;

impl Writer<'_> {
    pub(super) fn order(&mut self, Order { what, change }: &Order) {
        match what {
            Ordered::Admission(limit) => {
                self.u8(0);
                self.opt(limit.as_ref(), |w, limit| {
                    w.u32(limit.per_second);
                    w.u32(limit.burst);
                });
            }
            Ordered::Drain(over) => {
                self.u8(1);
                self.duration(*over);
            }
            Ordered::Shedding(shedding::Order { cap, expected }) => {
                self.u8(2);
                self.opt(cap.as_ref(), |w, (cap_milli, lasts)| {
                    w.u64(*cap_milli);
                    w.duration(*lasts);
                });
                self.opt(expected.as_ref(), |w, lasts| w.duration(*lasts));
            }
        }
        self.text(change.by.as_str());
        self.text(&change.justification);
        self.u64(change.at.0);
    }

    pub(super) fn share(&mut self, share: &Share) {
        self.u32(share.of);
        self.u32(share.others);
        self.opt(share.whole.as_ref(), Writer::order);
        self.u32(share.port.number);
        self.flag(share.port.leaves);
    }

    pub(super) fn bundle(&mut self, Bundle { limited, key }: Bundle) {
        self.one_of(&LIMITED, &limited);
        self.u64(key);
    }
}

impl Reader<'_> {
    pub(super) fn bundle(&mut self) -> Read<Bundle> {
        Ok(Bundle { limited: self.one_of(&LIMITED)?, key: self.u64()? })
    }

    pub(super) fn order(&mut self) -> Read<Order> {
        Ok(Order {
            what: match self.u8()? {
                0 => Ordered::Admission(self.opt(|r| Ok(Limit { per_second: r.u32()?, burst: r.u32()? }))?),
                1 => Ordered::Drain(self.duration()?),
                2 => Ordered::Shedding(shedding::Order {
                    cap: self.opt(|r| Ok((r.u64()?, r.duration()?)))?,
                    expected: self.opt(Reader::duration)?,
                }),
                _ => return Err(Fault::Field),
            },
            change: Change { by: self.user()?, justification: self.text()?.to_owned(), at: Wall(self.u64()?) },
        })
    }

    pub(super) fn share(&mut self) -> Read<Share> {
        let (of, others, whole) = (self.u32()?, self.u32()?, self.opt(Reader::order)?);
        Ok(Share { of, others, whole, port: places::Answer { number: self.u32()?, leaves: self.flag()? } })
    }
}
