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
	MOVQ 0(R10), AX
	MOVQ 24(R10), BX
	MOVQ 48(R10), CX
	MOVQ 72(R10), DX
	MOVQ 96(R10), SI
	MOVQ 120(R10), DI
	MOVQ 144(R10), R8
	MOVQ 168(R10), R9
	XORQ R12, R12

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
	MOVQ 0(R10), AX
	MOVQ 24(R10), BX
	MOVQ 48(R10), CX
	MOVQ 72(R10), DX
	MOVQ 96(R10), SI
	MOVQ 120(R10), DI
	MOVQ 144(R10), R8
	MOVQ 168(R10), R9
	XORQ R12, R12

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
