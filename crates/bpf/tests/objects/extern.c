/* A kernel function that only the kernel has: refused. */
#include "bpf.h"

extern u64 bpf_frob(u64 x) __attribute__((section(".ksyms")));

SEC("socket")
int calls_it(u64 *args)
{
	return bpf_frob(args[0]);
}
