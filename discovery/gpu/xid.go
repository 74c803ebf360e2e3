package gpu

import "fmt"

// xids describes the errors after which somebody has to look at the machine, and those that applications cause most
// often (https://docs.nvidia.com/deploy/xid-errors).
var xids = map[uint64]string{
	13:  "graphics engine exception: an application error, seldom hardware",
	31:  "memory page fault: an application read or wrote a wrong address",
	43:  "an application's channel stopped: it failed, the GPU is well",
	45:  "work was removed, as after an error or when an application was killed",
	48:  "double bit error in memory: reset the GPU",
	62:  "the internal micro-controller halted: reset the GPU",
	63:  "a row of memory is to be remapped: reset the GPU when it is free",
	64:  "a row of memory could not be remapped: replace the GPU if it stays so after a reset",
	74:  "NVLink error: reset the GPUs, look at the fabric manager's log",
	79:  "the GPU has fallen off the bus: restart the node, look at power, temperature and PCIe",
	92:  "high rate of single bit errors",
	94:  "contained memory error: the application that was hit ended, others go on",
	95:  "uncontained memory error: reset the GPU",
	109: "context switch timed out: an application error or the driver's",
	119: "the GPU's firmware does not answer (GSP timeout): reset the GPU",
	120: "the GPU's firmware failed (GSP error): reset the GPU",
	140: "unrecovered memory error: reset the GPU",
	145: "NVLink error: reset the GPUs, look at the fabric manager's log",
	149: "NVLink error: reset the GPUs, look at the fabric manager's log",
}

// XidText says in words what an Xid means.
func XidText(code uint64) string {
	if s, ok := xids[code]; ok {
		return s
	}
	return fmt.Sprintf("see https://docs.nvidia.com/deploy/xid-errors for %d", code)
}
