// Package tcp moves slices over the data links of a channel, plain TCP or TLS, from the blocks of the source straight into
// the blocks of the destination.
//
// Each link is full duplex, with one goroutine that sends and one that receives. Posted slices wait in one queue per
// channel. A link takes the next slice when it is free, so the fastest link carries the most. A link that fails takes no
// other with it: the transport asks for a new one (transport.LinkSource) and tells the machine (transfer.LinkLost).
//
// # On the wire
//
// A link carries frames and nothing else. A frame is one slice: header, payload, trailer. All integers are
// little-endian, CRC is CRC32C (Castagnoli).
//
//	header (40 bytes)
//	 0  u32  magic      0x4450564b, "KVPD"
//	 4  u8   version    1
//	 5  u8   type       1: slice
//	 6  u16  flags      1: the trailer holds checksums; others 0
//	 8  u64  xfer       the transfer; its id was drawn by the receiver
//	16  u32  seg        segment of the transfer
//	20  u32  slice      slice of the segment's plan
//	24  u32  attempt    counts the times this slice is sent, from 0
//	28  u32  length     payload bytes: those of the slice, at most 64 MiB
//	32  u32  reserved   0
//	36  u32  crc        of bytes 0 to 35
//
//	payload (length bytes): the slice's bytes in the order of its plan
//
//	trailer (8 bytes, and 4 more for each begun 256 KiB of payload when flag 1 is set)
//	 0  u32  status     0: the payload is whole; 1: source memory failed, 2: cancelled, and zeros fill what is missing
//	 4  u32  crc[]      of each 256 KiB of payload, the last one shorter
//	 .  u32  crc        of the trailer before it
//
// A receiver takes a payload only when a live Expect has a plan with that slice, of exactly that length, and the slice has
// not landed yet. The link ends on a length that differs from the plan, on a slice that the plan does not have, and on any
// header or trailer that is not as above. Everything else is read and thrown away, so that one cancelled transfer does not
// cost the link.
package tcp
