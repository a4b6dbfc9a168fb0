//! The viewer's side of a room: a viewer is a position, and everything it is sent is a walk from there to the head.
//!
//! Like a reader with a finger in a book that others keep writing: the finger is all that is kept for it. Each room has
//! one [`ring`] of its last events; a [`walk`] says what lies between a finger and the newest line; [`merge`] says when to
//! walk and [`pace`] how often what is no event is told; [`part`] cuts what one viewer is given of a wide room; [`retracts`] hides what was taken back; [`resume`] says what a finger from before a disconnect is still worth; [`session`] is one connection's manners; [`people`] counts who watches.
//!
//! Nothing here may pass over a priority event, go back in ids, or move a position past something that was neither given
//! nor counted. The awkward case is the floor: a ring knows nothing of what lies before it, and says so instead of guessing.

pub mod merge;
pub mod pace;
pub mod part;
pub mod people;
pub mod refill;
pub mod resume;
pub mod retracts;
pub mod ring;
pub mod session;
pub mod walk;
