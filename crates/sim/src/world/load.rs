//! Gateways under more than they can carry: what their shedders take from viewers of wide rooms.

use std::time::Duration;

use grandstand_core::sampler::shedder::{Override, Signals};
use grandstand_core::time::Mono;

use crate::process::{CAP_MILLI, State};
use crate::world::{GatewayIdx, World};

/// How often a gateway looks at itself.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl World {
    /// The gateway that people come to is late and busy for a while; an operator may order a lower cap than it would take itself.
    pub(super) fn overload(&mut self) {
        let (lasts, ordered) = (self.draw(4_000, 12_000), self.rng.chance(1, 3));
        let (until, cap_milli) = (self.now + self.draw(1_000, 6_000), self.rng.below(2_000));
        let now = self.now;
        let Some(host) = self.gateways.get_mut(self.front).filter(|host| host.state == State::Running) else { return };
        host.loaded_until = host.loaded_until.max(now + lasts);
        if ordered && host.shedder.order(Some(Override { cap_milli, until }), now) {
            host.ordered_until = until;
        }
    }

    pub(super) fn keep_shedder(&mut self, gateway: GatewayIdx) {
        let (now, healed) = (self.now, self.healed);
        let host = &mut self.gateways[gateway];
        if now < host.shed_at {
            return;
        }
        host.shed_at = now + LOOK_EVERY;
        let loaded = now < host.loaded_until && !healed;
        let (late, busy) = if loaded { (Duration::from_millis(400), 950) } else { (Duration::ZERO, 100) };
        host.shedder.on_tick(Signals { late: Some(late), busy_permille: Some(busy) }, now);
    }

    /// The cap in force on a gateway, and whether it is as low as an operator wants it.
    pub(super) fn cap(&self, gateway: GatewayIdx, now: Mono) -> (u64, bool) {
        let host = &self.gateways[gateway];
        (host.shedder.cap_milli(CAP_MILLI, now), now < host.ordered_until)
    }
}
