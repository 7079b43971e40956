/* Maps in the legacy section, no BTF, two programs in one section. */
#include "bpf.h"

struct bpf_map_def {
	u32 type, key_size, value_size, max_entries, map_flags;
};

struct bpf_map_def SEC("maps") counters = {
	.type = ARRAY,
	.key_size = 4,
	.value_size = 8,
	.max_entries = 2,
};

struct bpf_map_def SEC("maps") starts = {
	.type = HASH,
	.key_size = 8,
	.value_size = 8,
	.max_entries = 16,
};

SEC("kprobe/do_work")
int enter(void *ctx)
{
	u64 id = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();

	return bpf_map_update_elem(&starts, &id, &now, 0);
}

SEC("kprobe/do_work")
int leave(void *ctx)
{
	u64 id = bpf_get_current_pid_tgid(), *start = bpf_map_lookup_elem(&starts, &id), *n;
	u32 key = 1;

	n = bpf_map_lookup_elem(&counters, &key);
	if (!start || !n)
		return 0;
	__sync_fetch_and_add(n, bpf_ktime_get_ns() - *start);
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
