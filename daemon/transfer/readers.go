package transfer

// An item that is found by key has any number of readers, and they end in any order: each knows its place in the list.

func (it *item) read(k *seeker) {
	k.reads = len(it.readers)
	it.readers = append(it.readers, k)
}

// leave takes a reader off the list; the last one gets its place.
func (it *item) leave(k *seeker) {
	if k.reads >= len(it.readers) || it.readers[k.reads] != k {
		return // the item has ended
	}
	end := len(it.readers) - 1
	last := it.readers[end]
	last.reads = k.reads
	it.readers[k.reads] = last
	it.readers[end] = nil
	it.readers = it.readers[:end]
}
