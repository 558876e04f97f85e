#include "textflag.h"

// func moveWords(dst, src unsafe.Pointer, words uintptr)
//
// Pairs of words by LDP and STP, each register of which is single-copy atomic where it is aligned to 8.
TEXT ·moveWords(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD words+16(FP), R2
	SUBS $2, R2, R2
	BLO  rest

pair:
	LDP.P 16(R1), (R3, R4)
	STP.P (R3, R4), 16(R0)
	SUBS  $2, R2, R2
	BHS   pair

rest:
	ADDS $2, R2, R2
	BEQ  done
	MOVD (R1), R3
	MOVD R3, (R0)

done:
	RET

// func Barrier()
//
// DMB ISH: loads and stores, for all processors that run this operating system.
TEXT ·Barrier(SB), NOSPLIT, $0-0
	DMB $0xB
	RET

// func StoreRelease(p *uint32, v uint32)
TEXT ·StoreRelease(SB), NOSPLIT, $0-12
	MOVD  p+0(FP), R0
	MOVW  v+8(FP), R1
	STLRW R1, (R0)
	RET
