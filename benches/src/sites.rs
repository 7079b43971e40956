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

/// A function that runs each of its many sites of a key.
macro_rules! all {
    ($key:ident, $all:ident, $($sites:tt)*) => {
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
    };
}

/// A key, and a kind of key that is this key. Nobody claims it: machines that have it share it.
macro_rules! key {
    ($key:ident, $kind:ident) => {
        jump_label::define_static_key_false!(static $key);

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

key!(KEY_1, Sites1);
key!(KEY_16, Sites16);
all!(KEY_16, all_16, x16!(test!();););
key!(KEY_256, Sites256);
all!(KEY_256, all_256, x16!(x16!(test!(););););
key!(KEY_4096, Sites4096);
all!(KEY_4096, all_4096, x16!(x16!(x16!(test!();););););

/// A function that tests a key many times, and says how often it was on.
type Tests = fn() -> u64;

/// The keys of many sites, and what runs them. Each has a few more than its name says: those of machines.
pub(crate) const KEYS: [(&StaticKeyFalse, Tests); 3] =
    [(&KEY_16, all_16), (&KEY_256, all_256), (&KEY_4096, all_4096)];
