#!/bin/sh
# Rebuilds the test objects from their sources. Needs clang with the BPF target (Debian: apt-get install clang llvm);
# the tests themselves need only the objects, which are kept beside their sources.
set -eu
cd "$(dirname "$0")"
FLAGS="-O2 -Wall -Wno-unused-function -mcpu=v3 -fno-ident"
clang -target bpf $FLAGS -g -c btf_maps.c -o btf_maps.o
clang -target bpf $FLAGS -c legacy_maps.c -o legacy_maps.o
clang -target bpf $FLAGS -g -c core.c -o core.o
clang -target bpf $FLAGS -g -c extern.c -o extern.o
printf 'int f(void) { return 1; }\n' | clang -target i386-linux-gnu -c -x c - -o i386.o
printf 'int f(void) { return 1; }\n' | clang -target x86_64-linux-gnu -c -x c - -o x86_64.o
for o in btf_maps core extern; do llvm-strip -g "$o.o"; done
