package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"syscall"

	"github.com/kvpipe/kvpipe/bench/lists"
)

// memory is one process's mapping, with the lists of blocks to send from and to
// receive into.
type memory struct {
	base       []byte
	block      int
	send, recv []uint32
}

func newMemory(s settings) (*memory, error) {
	size := s.Block * s.Blocks
	base, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED|syscall.MAP_ANONYMOUS|syscall.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	// Each page is written once, so that none is the shared zero page.
	for i := 0; i < size; i += 4096 {
		base[i] = 1
	}
	return &memory{
		base: base, block: s.Block,
		send: lists.Draw(s.Seed, s.Blocks, s.Blocks),
		recv: lists.Draw(s.Seed+lists.Dst, s.Blocks, s.Blocks),
	}, nil
}

func (m *memory) at(id uint32) []byte {
	off := int(id) * m.block
	return m.base[off : off+m.block]
}

// fill writes a pattern of (salt, position, offset) into the blocks to send.
func (m *memory) fill(salt uint64) {
	for i, id := range m.send {
		b, v := m.at(id), lists.Digest([]uint32{uint32(i)})^salt
		for k := 0; k < len(b); k += 8 {
			binary.LittleEndian.PutUint64(b[k:], v+uint64(k))
		}
	}
}

// check counts the received blocks that don't hold fill's pattern.
func (m *memory) check(salt uint64) int {
	bad := 0
	for i, id := range m.recv {
		b, v := m.at(id), lists.Digest([]uint32{uint32(i)})^salt
		for k := 0; k < len(b); k += 8 {
			if binary.LittleEndian.Uint64(b[k:]) != v+uint64(k) {
				bad++
				break
			}
		}
	}
	return bad
}

// share returns the range of n list entries that stream i of `of` carries.
func share(n, i, of int) (first, last int) { return n * i / of, n * (i + 1) / of }

func (m *memory) sendShare(w io.Writer, i int, r round) error {
	first, last := share(len(m.send), i, r.Streams)
	if r.Stage < m.block {
		for _, id := range m.send[first:last] {
			if _, err := w.Write(m.at(id)); err != nil {
				return err
			}
		}
		return nil
	}
	stage := make([]byte, 0, r.Stage)
	for _, id := range m.send[first:last] {
		if len(stage)+m.block > cap(stage) {
			if _, err := w.Write(stage); err != nil {
				return err
			}
			stage = stage[:0]
		}
		stage = append(stage, m.at(id)...)
	}
	_, err := w.Write(stage)
	return err
}

func (m *memory) recvShare(rd io.Reader, i int, r round) error {
	first, last := share(len(m.recv), i, r.Streams)
	for _, id := range m.recv[first:last] {
		if _, err := io.ReadFull(rd, m.at(id)); err != nil {
			return err
		}
	}
	return nil
}
