/* A field of a kernel struct by CO-RE: refused. */
#include "bpf.h"

struct task_struct {
	int pid;
} __attribute__((preserve_access_index));

SEC("raw_tp/sched")
int read_pid(struct task_struct *t)
{
	return t->pid;
}

char LICENSE[] SEC("license") = "GPL";
