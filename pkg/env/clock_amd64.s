#include "textflag.h"

// The frame is what the vDSO's function may use of the stack: C code does not ask whether there is enough. It needs some hundred
// bytes. A kernel whose compiler probes the stack touches a page more.
//
// The function writes SP, so the runtime does not unwind through it: a profiler's signal that arrives in it is counted as
// external code. The runtime preempts no goroutine in assembly or outside Go's text.
//
// func readByVDSO(fn uintptr) int64
TEXT ·readByVDSO(SB), 0, $4800-16
	MOVQ fn+0(FP), AX
	MOVQ SP, R12           // which the callee saves
	LEAQ 4768(SP), BX
	ANDQ $~15, BX
	MOVQ BX, SP            // the frame's upper end; the callee goes downwards through it
	MOVL $7, DI            // CLOCK_BOOTTIME
	MOVQ SP, SI            // the timespec: 16 bytes from here on
	CALL AX
	MOVQ 0(SP), CX
	MOVQ 8(SP), DX
	MOVQ R12, SP
	TESTL AX, AX
	JNE  failed
	IMULQ $1000000000, CX
	ADDQ DX, CX
	MOVQ CX, ret+8(FP)
	RET
failed:
	MOVQ $-1, ret+8(FP)
	RET
