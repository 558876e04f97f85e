#include "textflag.h"

#define PAIR(at) \
	MOVQ at(SI), AX;   \
	MOVQ at+8(SI), R8; \
	ADDQ at(DI), AX;   \
	ADDQ at+8(DI), R8; \
	MULQ R8;           \
	ADDQ AX, R10;      \
	ADCQ DX, R11

// func pairs(k *uint64, p *byte, n int) (low, high uint64)
TEXT ·pairs(SB), NOSPLIT, $0-40
	MOVQ k+0(FP), DI
	MOVQ p+8(FP), SI
	MOVQ n+16(FP), CX
	XORQ R10, R10
	XORQ R11, R11
four:
	SUBQ $4, CX
	JLT  rest
	PAIR(0)
	PAIR(16)
	PAIR(32)
	PAIR(48)
	ADDQ $64, SI
	ADDQ $64, DI
	JMP  four
rest:
	ADDQ $4, CX
	JEQ  done
one:
	PAIR(0)
	ADDQ $16, SI
	ADDQ $16, DI
	DECQ CX
	JNE  one
done:
	MOVQ R10, low+24(FP)
	MOVQ R11, high+32(FP)
	RET
