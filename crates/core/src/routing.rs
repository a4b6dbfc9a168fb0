//! Which partition a room lives in: a fixed hash, the same embedded and in a cluster, for ever.

use crate::ids::Partition;
use crate::names::{RoomId, UserId};

/// Fixed for the life of a deployment; recorded in the data folder.
pub const PARTITIONS: u16 = 1024;

/// FNV-1a over the bytes, finished by the splitmix64 mixer so that the low bits are good.
/// Source: Fowler/Noll/Vo, draft-eastlake-fnv; golden vectors below.
pub fn stable_hash(bytes: &[u8]) -> u64 {
    let mut h: u64 = 0xcbf2_9ce4_8422_2325;
    for &b in bytes {
        h = (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
}

pub fn partition_of(room: &RoomId) -> Partition {
    Partition((stable_hash(room.as_str().as_bytes()) % u64::from(PARTITIONS)) as u16)
}

/// Of what a user says in a wide room: a firehose is spread over all partitions, one user's part of it over none.
pub fn partition_of_raw(room: &RoomId, user: &UserId) -> Partition {
    let both = [room.as_str().as_bytes(), b"\n", user.as_str().as_bytes()].concat();
    Partition((stable_hash(&both) % u64::from(PARTITIONS)) as u16)
}

#[cfg(test)]
mod tests {
    use super::{partition_of, partition_of_raw};
    use crate::names::{RoomId, UserId};

    #[test]
    fn partitions_never_change() {
        let got: Vec<u16> = ["a", "demo", "match:2022-final", "room-1", "room-2"]
            .iter()
            .map(|r| partition_of(&RoomId::parse(r).unwrap()).0)
            .collect();
        assert_eq!(got, GOLDEN);
    }

    #[test]
    fn partitions_of_raw_comments_never_change() {
        let room = RoomId::parse("demo").unwrap();
        let got: Vec<u16> =
            ["u_1", "u_2", "zoë"].iter().map(|u| partition_of_raw(&room, &UserId::parse(u).unwrap()).0).collect();
        assert_eq!(got, [130, 18, 115]);
    }

    const GOLDEN: [u16; 5] = [248, 170, 621, 652, 378];
}
