// Package abicheck owns the golden file of the C ABI, testdata/abi.golden: size and offset of every struct of the headers
// in include/, every enum value and numeric macro, every function with its symbol version. A line of it may be added, but
// not changed: programs, libraries and daemons of other versions rely on it.
//
// The file is C: each line is a macro call, and capi/tests/test_abi.c compiles it into assertions. Here it is compared
// with what a C compiler makes of the headers, so that nothing is missing from it either. UPDATE=1 go test writes it anew.
package abicheck
