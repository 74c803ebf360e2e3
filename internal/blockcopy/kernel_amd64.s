#include "textflag.h"

// A lane is two slices, 48 bytes: the destination's address is at 0, the
// source's at 24. AHEAD asks for the first two lines of a source that comes
// next, which also has its address translated; the processor's own fetching
// takes over from there. More lines, or lines of the destination, or
// PREFETCHNTA, were measured to be slower. Prefetches never fault. A fault leaves these functions by a panic, at any
// load or store, so they keep no state and no frame. Registers Z16 to Z31 have
// no lower half that older instructions use, and need no VZEROUPPER.

#define AHEAD(offset) \
	MOVQ       offset(R10), R12; \
	PREFETCHT0 (R12);            \
	PREFETCHT0 64(R12)

// LANES has the ends of the four lanes at R10 in registers, and the offset at 0.
#define LANES \
	MOVQ 0(R10), AX;   \
	MOVQ 24(R10), BX;  \
	MOVQ 48(R10), CX;  \
	MOVQ 72(R10), DX;  \
	MOVQ 96(R10), SI;  \
	MOVQ 120(R10), DI; \
	MOVQ 144(R10), R8; \
	MOVQ 168(R10), R9; \
	XORQ R12, R12

// func fourAVX512(l *lane, n, groups int)
// n is a multiple of 64, more than 0; groups is more than 0.
TEXT ·fourAVX512(SB), NOSPLIT, $0-24
	MOVQ l+0(FP), R10
	MOVQ n+8(FP), R11
	MOVQ groups+16(FP), R13

group:
	AHEAD(216)
	AHEAD(264)
	AHEAD(312)
	AHEAD(360)
	LANES

loop:
	VMOVDQU64 (BX)(R12*1), Z16
	VMOVDQU64 (DX)(R12*1), Z17
	VMOVDQU64 (DI)(R12*1), Z18
	VMOVDQU64 (R9)(R12*1), Z19
	VMOVNTDQ  Z16, (AX)(R12*1)
	VMOVNTDQ  Z17, (CX)(R12*1)
	VMOVNTDQ  Z18, (SI)(R12*1)
	VMOVNTDQ  Z19, (R8)(R12*1)
	ADDQ $64, R12
	CMPQ R12, R11
	JB   loop
	ADDQ $192, R10
	DECQ R13
	JNZ  group
	RET

// What fourFarAVX512 fetches ahead, in bytes.
#define FAR 2048

// NEXT asks for a line that a lane of the next group will read: as far from its beginning as the source of this group that is
// read now is from its own last FAR bytes.
#define NEXT(offset) \
	MOVQ       offset(R10), R14; \
	PREFETCHT0 (R14)(R15*1);     \
	PREFETCHT0 64(R14)(R15*1)

// TWOLINES copies two lines of each of the four pieces.
#define TWOLINES \
	VMOVDQU64 (BX)(R12*1), Z16;   \
	VMOVDQU64 64(BX)(R12*1), Z17; \
	VMOVDQU64 (DX)(R12*1), Z18;   \
	VMOVDQU64 64(DX)(R12*1), Z19; \
	VMOVDQU64 (DI)(R12*1), Z20;   \
	VMOVDQU64 64(DI)(R12*1), Z21; \
	VMOVDQU64 (R9)(R12*1), Z22;   \
	VMOVDQU64 64(R9)(R12*1), Z23; \
	VMOVNTDQ  Z16, (AX)(R12*1);   \
	VMOVNTDQ  Z17, 64(AX)(R12*1); \
	VMOVNTDQ  Z18, (CX)(R12*1);   \
	VMOVNTDQ  Z19, 64(CX)(R12*1); \
	VMOVNTDQ  Z20, (SI)(R12*1);   \
	VMOVNTDQ  Z21, 64(SI)(R12*1); \
	VMOVNTDQ  Z22, (R8)(R12*1);   \
	VMOVNTDQ  Z23, 64(R8)(R12*1); \
	ADDQ      $128, R12

// func fourFarAVX512(l *lane, n, groups int)
// n is a multiple of 64, more than 0; groups is more than 0.
//
// Like fourAVX512, but two lines of a piece at a time, and every line is asked for FAR bytes before it is read: within the piece
// first, then, when less than that is left of it, in the pieces of the next group.
TEXT ·fourFarAVX512(SB), NOSPLIT, $0-24
	MOVQ l+0(FP), R10
	MOVQ groups+16(FP), R13

group:
	MOVQ n+8(FP), R11
	LANES
	XORQ R15, R15
	SUBQ $FAR, R11
	JBE  last

own:
	PREFETCHT0 FAR(BX)(R12*1)
	PREFETCHT0 (FAR+64)(BX)(R12*1)
	PREFETCHT0 FAR(DX)(R12*1)
	PREFETCHT0 (FAR+64)(DX)(R12*1)
	PREFETCHT0 FAR(DI)(R12*1)
	PREFETCHT0 (FAR+64)(DI)(R12*1)
	PREFETCHT0 FAR(R9)(R12*1)
	PREFETCHT0 (FAR+64)(R9)(R12*1)
	TWOLINES
	CMPQ R12, R11
	JB   own

last:
	MOVQ n+8(FP), R11
	SUBQ $128, R11
	CMPQ R12, R11
	JGT  odd

lines:
	NEXT(216)
	NEXT(264)
	NEXT(312)
	NEXT(360)
	TWOLINES
	ADDQ $128, R15
	CMPQ R12, R11
	JLE  lines

odd:
	ADDQ $128, R11
	CMPQ R12, R11
	JGE  done
	VMOVDQU64 (BX)(R12*1), Z16
	VMOVDQU64 (DX)(R12*1), Z17
	VMOVDQU64 (DI)(R12*1), Z18
	VMOVDQU64 (R9)(R12*1), Z19
	VMOVNTDQ  Z16, (AX)(R12*1)
	VMOVNTDQ  Z17, (CX)(R12*1)
	VMOVNTDQ  Z18, (SI)(R12*1)
	VMOVNTDQ  Z19, (R8)(R12*1)

done:
	ADDQ $192, R10
	DECQ R13
	JNZ  group
	RET

// func oneAVX512(l *lane, n int)
// n is a multiple of 64, more than 0.
TEXT ·oneAVX512(SB), NOSPLIT, $0-16
	MOVQ l+0(FP), R11
	MOVQ 0(R11), AX
	MOVQ 24(R11), BX
	MOVQ n+8(FP), R11
	XORQ R12, R12

loop:
	VMOVDQU64 (BX)(R12*1), Z16
	VMOVNTDQ  Z16, (AX)(R12*1)
	ADDQ $64, R12
	CMPQ R12, R11
	JB   loop
	RET

// func fourAVX2(l *lane, n, groups int)
// n is a multiple of 64, more than 0; groups is more than 0.
TEXT ·fourAVX2(SB), NOSPLIT, $0-24
	MOVQ l+0(FP), R10
	MOVQ n+8(FP), R11
	MOVQ groups+16(FP), R13

group:
	AHEAD(216)
	AHEAD(264)
	AHEAD(312)
	AHEAD(360)
	LANES

loop:
	VMOVDQU  (BX)(R12*1), Y0
	VMOVDQU  32(BX)(R12*1), Y1
	VMOVDQU  (DX)(R12*1), Y2
	VMOVDQU  32(DX)(R12*1), Y3
	VMOVDQU  (DI)(R12*1), Y4
	VMOVDQU  32(DI)(R12*1), Y5
	VMOVDQU  (R9)(R12*1), Y6
	VMOVDQU  32(R9)(R12*1), Y7
	VMOVNTDQ Y0, (AX)(R12*1)
	VMOVNTDQ Y1, 32(AX)(R12*1)
	VMOVNTDQ Y2, (CX)(R12*1)
	VMOVNTDQ Y3, 32(CX)(R12*1)
	VMOVNTDQ Y4, (SI)(R12*1)
	VMOVNTDQ Y5, 32(SI)(R12*1)
	VMOVNTDQ Y6, (R8)(R12*1)
	VMOVNTDQ Y7, 32(R8)(R12*1)
	ADDQ $64, R12
	CMPQ R12, R11
	JB   loop
	ADDQ $192, R10
	DECQ R13
	JNZ  group
	VZEROUPPER
	RET

// func twoAVX2(l *lane, n, groups int)
// n is a multiple of 64, more than 0; groups is more than 0.
TEXT ·twoAVX2(SB), NOSPLIT, $0-24
	MOVQ l+0(FP), R10
	MOVQ n+8(FP), R11
	MOVQ groups+16(FP), R13

group:
	AHEAD(120)
	AHEAD(168)
	MOVQ 0(R10), AX
	MOVQ 24(R10), BX
	MOVQ 48(R10), CX
	MOVQ 72(R10), DX
	XORQ R12, R12

loop:
	VMOVDQU  (BX)(R12*1), Y0
	VMOVDQU  32(BX)(R12*1), Y1
	VMOVDQU  (DX)(R12*1), Y2
	VMOVDQU  32(DX)(R12*1), Y3
	VMOVNTDQ Y0, (AX)(R12*1)
	VMOVNTDQ Y1, 32(AX)(R12*1)
	VMOVNTDQ Y2, (CX)(R12*1)
	VMOVNTDQ Y3, 32(CX)(R12*1)
	ADDQ $64, R12
	CMPQ R12, R11
	JB   loop
	ADDQ $96, R10
	DECQ R13
	JNZ  group
	VZEROUPPER
	RET

// func oneAVX2(l *lane, n int)
// n is a multiple of 64, more than 0.
TEXT ·oneAVX2(SB), NOSPLIT, $0-16
	MOVQ l+0(FP), R11
	MOVQ 0(R11), AX
	MOVQ 24(R11), BX
	MOVQ n+8(FP), R11
	XORQ R12, R12

loop:
	VMOVDQU  (BX)(R12*1), Y0
	VMOVDQU  32(BX)(R12*1), Y1
	VMOVNTDQ Y0, (AX)(R12*1)
	VMOVNTDQ Y1, 32(AX)(R12*1)
	ADDQ $64, R12
	CMPQ R12, R11
	JB   loop
	VZEROUPPER
	RET

// func sfence()
TEXT ·sfence(SB), NOSPLIT, $0-0
	SFENCE
	RET

// func vzeroupper()
TEXT ·vzeroupper(SB), NOSPLIT, $0-0
	VZEROUPPER
	RET

// func cpuid(leaf uint32) (a, b, c, d uint32)
TEXT ·cpuid(SB), NOSPLIT, $0-24
	MOVL leaf+0(FP), AX
	XORL CX, CX
	CPUID
	MOVL AX, a+8(FP)
	MOVL BX, b+12(FP)
	MOVL CX, c+16(FP)
	MOVL DX, d+20(FP)
	RET
