#include "textflag.h"

// func moveWords(dst, src unsafe.Pointer, words uintptr)
//
// Lines of 64 bytes by 16-byte moves, the rest by words. A 16-byte move may be performed as two accesses, but they part at an
// aligned word: a processor splits an access only at a cache line, and the region's side is aligned to 8. No REP MOVS and no
// non-temporal stores: the first may go byte by byte, the second are not ordered like other stores.
TEXT ·moveWords(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ words+16(FP), CX
	SUBQ $8, CX
	JB   rest

	// Ask for the lines of a node all at once, so that their misses overlap; what a prefetch asks beyond the range cannot fault.
	CMPQ CX, $(3*8)
	JB   line
	PREFETCHT0 64(SI)
	PREFETCHT0 128(SI)
	PREFETCHT0 192(SI)
	CMPQ CX, $(7*8)
	JB   line
	PREFETCHT0 256(SI)
	PREFETCHT0 320(SI)
	PREFETCHT0 384(SI)
	PREFETCHT0 448(SI)
	CMPQ CX, $(15*8)
	JB   line
	PREFETCHT0 512(SI)
	PREFETCHT0 576(SI)
	PREFETCHT0 640(SI)
	PREFETCHT0 704(SI)
	PREFETCHT0 768(SI)
	PREFETCHT0 832(SI)
	PREFETCHT0 896(SI)
	PREFETCHT0 960(SI)

line:
	MOVUPS 0(SI), X0
	MOVUPS 16(SI), X1
	MOVUPS 32(SI), X2
	MOVUPS 48(SI), X3
	MOVUPS X0, 0(DI)
	MOVUPS X1, 16(DI)
	MOVUPS X2, 32(DI)
	MOVUPS X3, 48(DI)
	ADDQ   $64, SI
	ADDQ   $64, DI
	SUBQ   $8, CX
	JAE    line

rest:
	ADDQ $8, CX
	JZ   done

word:
	MOVQ (SI), AX
	MOVQ AX, (DI)
	ADDQ $8, SI
	ADDQ $8, DI
	DECQ CX
	JNZ  word

done:
	RET

// func Barrier()
//
// A locked read-modify-write of the stack orders loads and stores of write-back memory as MFENCE does, and is faster.
TEXT ·Barrier(SB), NOSPLIT, $8-0
	LOCK
	ORL $0, 0(SP)
	RET

// func prefetch(p unsafe.Pointer)
TEXT ·prefetch(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 (AX)
	PREFETCHT0 64(AX)
	PREFETCHT0 128(AX)
	PREFETCHT0 192(AX)
	PREFETCHT0 256(AX)
	PREFETCHT0 320(AX)
	PREFETCHT0 384(AX)
	PREFETCHT0 448(AX)
	RET
