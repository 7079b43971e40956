; Counts the system calls of even number in a counter of its own frame, as the verifier's log would print it.
r0 = 0
r1 = *(u64 *)(r1 +8)      ; the second argument of sys_enter
r1 &= 1
if r1 != 0x0 goto odd
*(u64 *)(r10 -8) = 0
r2 = *(u64 *)(r10 -8)
r2 += 1
*(u64 *)(r10 -8) = r2
odd:
exit
