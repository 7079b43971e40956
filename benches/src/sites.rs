//! Keys of 1, 16, 256 and 4096 sites, for flips; and as kinds of key, for machines.

use std::hint::black_box;

use jump_label::{KeyError, StaticKey, StaticKeyFalse, static_branch_unlikely};

/// The same, 16 times.
macro_rules! x16 {
    ($($t:tt)*) => {
        $($t)* $($t)* $($t)* $($t)* $($t)* $($t)* $($t)* $($t)*
        $($t)* $($t)* $($t)* $($t)* $($t)* $($t)* $($t)* $($t)*
    };
}

/// A key, a function that runs each of its sites, and a kind of key that is this key. Nobody claims it: machines that have it
/// share it.
macro_rules! key {
    ($key:ident, $kind:ident, $all:ident, $($sites:tt)*) => {
        jump_label::define_static_key_false!(static $key);

        #[inline(never)]
        fn $all() -> u64 {
            let mut taken = black_box(0);
            macro_rules! test {
                () => {
                    if static_branch_unlikely!($key) {
                        taken += 1;
                    }
                };
            }
            $($sites)*
            taken
        }

        pub(crate) struct $kind;

        impl StaticKey for $kind {
            fn claim() -> Result<Self, KeyError> {
                jump_label::support()?;
                Ok(Self)
            }
            #[inline(always)]
            fn unlikely(&self) -> bool {
                static_branch_unlikely!($key)
            }
            fn slow_inc(&self) -> Result<(), KeyError> {
                $key.slow_inc()
            }
            fn slow_dec(&self) -> Result<(), KeyError> {
                $key.slow_dec()
            }
            fn count(&self) -> i32 {
                $key.count()
            }
        }
    };
}

key!(KEY_1, Sites1, all_1, test!(););
key!(KEY_16, Sites16, all_16, x16!(test!();););
key!(KEY_256, Sites256, all_256, x16!(x16!(test!(););););
key!(KEY_4096, Sites4096, all_4096, x16!(x16!(x16!(test!();););););

/// How many sites there are for flips, the key, and what runs them. Machines' own come on top.
pub(crate) const KEYS: [(usize, &StaticKeyFalse, fn() -> u64); 4] =
    [(1, &KEY_1, all_1), (16, &KEY_16, all_16), (256, &KEY_256, all_256), (4096, &KEY_4096, all_4096)];
