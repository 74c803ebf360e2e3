#include "textflag.h"

// A checksum is the remainder of a division, so 16 bytes may be replaced by any 16 bytes further on that leave the same
// one: their two halves, multiplied by powers of x that stand for the distance, modulo the polynomial. (Gopal et al.,
// "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009.) This does it to 16 pieces
// side by side, then to those that are left, and has the processor's CRC32 instruction do the last 16 bytes.
//
// Of a distance of n bytes, the constants are x^(8n+32) and x^(8n-32) modulo the Castagnoli polynomial 0x11edc6f41,
// bits in the reverse order, shifted left by one.

DATA by256<>+0(SB)/8, $0x0dcb17aa4
DATA by256<>+8(SB)/8, $0x0b9e02b86
GLOBL by256<>(SB), RODATA|NOPTR, $16

DATA by64<>+0(SB)/8, $0x0740eef02
DATA by64<>+8(SB)/8, $0x09e4addf8
GLOBL by64<>(SB), RODATA|NOPTR, $16

DATA by16<>+0(SB)/8, $0x0f20c0dfe
DATA by16<>+8(SB)/8, $0x14cd00bd6
GLOBL by16<>(SB), RODATA|NOPTR, $16

// FOLD replaces acc by what it stands for at the distance of k, with what is there.
#define FOLD(k, acc, there, tmp) \
	VPCLMULQDQ $0x11, k, acc, tmp; \
	VPCLMULQDQ $0x00, k, acc, acc; \
	VPTERNLOGQ $0x96, there, tmp, acc

// A fault leaves this function by a panic, at any load, so it keeps no state and no frame. Registers Z16 to Z31 have no
// lower half that older instructions use, and need no VZEROUPPER.

// func fold(state uint32, p []byte) uint32
TEXT ·fold(SB), NOSPLIT, $0-36
	MOVL state+0(FP), AX
	MOVQ p_base+8(FP), SI
	MOVQ p_len+16(FP), CX

	VMOVDQU64       (SI), Z16
	VMOVDQU64       64(SI), Z17
	VMOVDQU64       128(SI), Z18
	VMOVDQU64       192(SI), Z19
	VMOVD           AX, X20
	VPXORQ          Z20, Z16, Z16
	VBROADCASTI32X4 by256<>(SB), Z20
	JMP             next

more:
	FOLD(Z20, Z16, (SI), Z21)
	FOLD(Z20, Z17, 64(SI), Z22)
	FOLD(Z20, Z18, 128(SI), Z23)
	FOLD(Z20, Z19, 192(SI), Z24)

next:
	ADDQ $256, SI
	SUBQ $256, CX
	JNZ  more

	VBROADCASTI32X4 by64<>(SB), Z20
	FOLD(Z20, Z16, Z17, Z21)
	FOLD(Z20, Z16, Z18, Z21)
	FOLD(Z20, Z16, Z19, Z21)

	VMOVDQU64     by16<>(SB), X20
	VEXTRACTI32X4 $1, Z16, X17
	VEXTRACTI32X4 $2, Z16, X18
	VEXTRACTI32X4 $3, Z16, X19
	FOLD(X20, X16, X17, X21)
	FOLD(X20, X16, X18, X21)
	FOLD(X20, X16, X19, X21)

	XORL   AX, AX
	VMOVQ  X16, BX
	CRC32Q BX, AX
	VPSHUFD $0x4e, X16, X16
	VMOVQ  X16, BX
	CRC32Q BX, AX
	MOVL   AX, ret+32(FP)
	RET
