//! Known faults that the simulator must catch. Compiled to nothing without the feature `planted`.
//!
//! One fault is armed at a time, by number, for the current thread: the owner's side from 1, the viewers' side from 21,
//! likes from 41, gifts and banners from 51, wide rooms from 61, tokens from 81,
//! bans from 91, the score desk from 120, what rooms ask and where they may be shown from 130, how much of a wide room a viewer is
//! given and whom a retract reaches from 141, the ledger and blackouts from 160; the log's file from 170.

/// Every fault, with what it is.
pub const ALL: &[(u32, &str)] = &[
    (1, "a publish is answered when its batch is sealed, before the commit"),
    (2, "a publish of a failed batch is acknowledged with the id it would have had"),
    (3, "the keys of the last ten minutes are forgotten on recovery"),
    (4, "a take-over does not write its EpochStart and goes on in the old epoch"),
    (5, "a claim is kept when its batch failed: its key never gets an answer again"),
    (6, "a ban is not checked again when the id is given"),
    (7, "a priority number is used up by a failed batch"),
    (8, "the reader accepts a record of a lower epoch"),
    (9, "a second publish of a key whose first is under way is published too"),
    (10, "the lower revision of a score wins"),
    (11, "a failed batch leaves a hole in the sequence"),
    (12, "the reader goes on after a hole"),
    (13, "a slow-mode slot is not held between check and commit"),
    (14, "a retracted comment stays in the snapshot"),
    (15, "log time follows the wall clock back"),
    (16, "recovery forgets the newest priority number"),
    (21, "a cut plan moves its viewer to the head"),
    (22, "a priority event among stale comments is dropped with them"),
    (23, "comments passed over are not told"),
    (24, "a walk from below the floor begins with what is still held"),
    (25, "an event of a page that came twice is given twice"),
    (26, "a resume begins its comments at the head"),
    (27, "comments passed over are counted one short"),
    (28, "an event that must wait for the window is forgotten"),
    (29, "a resume is given the room's newest priority number"),
    (30, "an event that reaches a ring twice is held twice"),
    (31, "the ring answers a cursor from below its floor"),
    (32, "a page put before a ring loses its edge: the event next to the floor"),
    (33, "a ring begun anew is taken for whole: what came while it was out of touch is not read"),
    (34, "a page of the log that begins within a window is picked from without what lies before it"),
    (35, "picks of a wide room that came too late are not told"),
    (41, "the likes of a frame that comes twice are counted twice"),
    (42, "the likes of a failed batch are forgotten"),
    (43, "a tally holds what was added instead of the totals"),
    (44, "recovery forgets up to which frame the likes of a sender are counted"),
    (51, "recovery from a checkpoint forgets the banners of the last minute"),
    (52, "banners are not counted against their caps"),
    (53, "recovery from a checkpoint forgets the combos that were open"),
    (54, "an update of a combo says what was added instead of the sum"),
    (55, "log time stands still while the wall clock is behind"),
    (56, "one room's banners may fill the wall"),
    (61, "a room turns narrow with candidates still in its window"),
    (62, "a winner whose author was banned meanwhile is shown"),
    (63, "a winner that was taken back meanwhile is shown"),
    (64, "winners of a failed batch are forgotten"),
    (65, "what a crash gives back to the window may be shown a second time"),
    (66, "the next owner is not asked what became of what was said to the one before"),
    (71, "a strict room shows what has no allow"),
    (72, "the policy's version is not looked at again when the id is given"),
    (73, "a block that comes late is forgotten"),
    (74, "recovery from a checkpoint forgets what is held"),
    (75, "recovery forgets the keys of what was refused or held"),
    (81, "recovery from a checkpoint forgets what is said of tokens"),
    (82, "a declared outage lifts revocations"),
    (83, "a late token is taken after the outage that let it"),
    (91, "what a shadow-banned user says in a narrow room is shown to everyone"),
    (92, "what a shadow-banned user says in a wide room is shown to everyone when it is drawn"),
    (93, "a purged comment stays in the snapshot"),
    (94, "recovery from a checkpoint forgets who may speak nowhere"),
    (95, "a ban of the whole site is not checked again when the id is given"),
    (110, "viewers are not told to take back what an erased user said"),
    (111, "recovery forgets that a user was erased"),
    (112, "what is held of an erased user stays in the queue"),
    (113, "what waits of an erased user in a wide room may still be shown"),
    (120, "a provider that only stands by is shown"),
    (121, "what goes on after a switch-over or a correction keeps its provider's number"),
    (122, "a switch-over leaves standing what the new primary knows nothing of"),
    (123, "recovery from a checkpoint forgets who is shown of a match"),
    (124, "an operator's change is made although the match has changed since it was shown"),
    (125, "after a switch-over an older event may lead"),
    (130, "a banner outlives the blackout of the room it names"),
    (131, "a room that has settled stays open"),
    (132, "a user's report of one event counts as often as it comes"),
    (133, "a room that takes nothing twice forgets what was said in it"),
    (134, "a pin stays past its end"),
    (135, "a retract of what was held hides nothing that is shown of it"),
    (136, "what a batch takes back it may approve"),
    (137, "a room asks nothing of its comments"),
    (138, "viewers are not told what their room asks from now on"),
    (141, "a viewer is given one comment a window more than its cap"),
    (142, "the shedder takes more than half without an order"),
    (143, "who has waited two seconds is given no word"),
    (144, "an order to the shedder outlives its end"),
    (146, "a retract of what was said in a wide room does not name what was shown of it"),
    (147, "recovery forgets which of what was said was shown"),
    (148, "what a ring was filled back with takes nothing back"),
    (149, "a ring gives what was taken back to who comes later"),
    (150, "a retract of what nobody was shown is told to everyone"),
    (160, "of two orders for a room in one batch one is not in its ledger"),
    (161, "a blackout of a country does not hold in its parts"),
    (162, "who is in already is not sent away by a blackout"),
];

/// Faults of the log's file, with what they are: what its own simulation must catch.
pub const STORE: &[(u32, &str)] = &[(170, "an erase passes over what retention has emptied")];

#[cfg(feature = "planted")]
mod armed {
    use std::cell::Cell;

    thread_local! {
        pub(super) static ARMED: Cell<u32> = const { Cell::new(0) };
    }
}

/// Arms fault `n` for this thread; 0 disarms.
#[cfg(feature = "planted")]
pub fn plant(n: u32) {
    armed::ARMED.set(n);
}

/// Whether fault `n` is armed on this thread.
#[cfg(feature = "planted")]
pub fn planted(n: u32) -> bool {
    armed::ARMED.get() == n
}

/// Whether fault `n` is armed on this thread: never, without the feature.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn planted(_n: u32) -> bool {
    false
}
