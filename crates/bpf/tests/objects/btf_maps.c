/* Maps defined by BTF, global data of each kind, functions in .text. */
#include "bpf.h"

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, HASH);
	__uint(max_entries, 64);
	__type(key, u32);
	__type(value, u64);
} calls SEC(".maps");

struct value {
	u64 count;
	u32 last;
};

struct {
	__uint(type, PERCPU_ARRAY);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, struct value);
} per_cpu SEC(".maps");

struct {
	__uint(type, RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

struct {
	__uint(type, ARRAY);
	__uint(max_entries, 2);
	__uint(key_size, 4);
	__uint(value_size, 16);
	__uint(map_flags, 128);
} fixed SEC(".maps");

const volatile u32 step = 3;
u64 total = 40;
u64 runs;
static u32 hidden[4] = { 1, 2, 3, 4 };

static __noinline u64 twice(u64 x)
{
	return x * 2 + step;
}

__noinline u64 thrice(u64 x)
{
	return twice(x) + x;
}

SEC("raw_tracepoint/sys_enter")
int count(u64 *args)
{
	u32 key = args[1];
	u64 one = 1, *n = bpf_map_lookup_elem(&calls, &key);
	struct value *v;

	if (n)
		__sync_fetch_and_add(n, 1);
	else
		bpf_map_update_elem(&calls, &key, &one, 0);
	key = 0;
	v = bpf_map_lookup_elem(&per_cpu, &key);
	if (v) {
		v->count++;
		v->last = args[1];
	}
	total += step;
	runs++;
	return 0;
}

SEC("socket")
int calls_functions(u64 *args)
{
	return thrice(args[0]) + hidden[args[1] & 3];
}

SEC("raw_tp/event")
int event(u64 *args)
{
	u64 record[2] = { args[0], runs };
	static const char fmt[] = "event %d of %llu\n";

	bpf_trace_printk(fmt, sizeof(fmt), (u32)args[0], runs);
	return bpf_ringbuf_output(&events, record, sizeof(record), 0);
}
