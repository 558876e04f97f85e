#include "textflag.h"

// func update(start uint32, p *byte, n int) uint32
TEXT ·update(SB), NOSPLIT, $0-28
	MOVL start+0(FP), AX
	MOVQ p+8(FP), SI
	MOVQ n+16(FP), CX
words:
	CMPQ CX, $8
	JLT  half
	CRC32Q (SI), AX
	ADDQ $8, SI
	SUBQ $8, CX
	JMP  words
half:
	CMPQ CX, $4
	JLT  bytes
	CRC32L (SI), AX
	ADDQ $4, SI
	SUBQ $4, CX
bytes:
	TESTQ CX, CX
	JEQ  done
	CRC32B (SI), AX
	INCQ SI
	DECQ CX
	JMP  bytes
done:
	MOVL AX, ret+24(FP)
	RET
