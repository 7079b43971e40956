//! Static keys: counted branches that cost next to nothing when off.
