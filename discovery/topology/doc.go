// Package topology says how the GPUs, NICs and memory of a node hang together: which PCIe switch and root complex
// each device is behind, at which NUMA node it is, and which GPUs NVLink joins. From that it says how far any two are
// from each other, in the words of "nvidia-smi topo -m".
//
// Read computes it from a /sys tree, whose root is a parameter, and from short descriptions of devices that others
// have found. It keeps nothing and asks nobody else: the same tree and devices give the same Topology, in the same
// order. Matrix prints a Topology for people; SVG draws it.
//
// Sources: Documentation/ABI/testing/sysfs-bus-pci and sysfs-devices-node of Linux for what is read; the PCI Express Base
// Specification for what a switch is (one upstream port, a bridge, above downstream ports, each a bridge too).
package topology
