package transfer

// An item that is found by key has any number of readers, and an end has any number of gets for which it has no room.
// They end in any order, so each knows its place in the list.

func byReads(k *seeker) *int { return &k.reads }
func byShort(k *seeker) *int { return &k.short }

// enlist puts a seeker at the end of a list.
func enlist(list []*seeker, k *seeker, place func(*seeker) *int) []*seeker {
	*place(k) = len(list)
	return append(list, k)
}

// delist takes a seeker off the list, if it is there; the last one moves to its place.
func delist(list []*seeker, k *seeker, place func(*seeker) *int) []*seeker {
	at := *place(k)
	if at >= len(list) || list[at] != k {
		return list
	}
	end := len(list) - 1
	last := list[end]
	*place(last) = at
	list[at] = last
	list[end] = nil
	return list[:end]
}

func (it *item) read(k *seeker) { it.readers = enlist(it.readers, k, byReads) }

// leave takes a reader off the list. If the item has ended, its list is empty already.
func (it *item) leave(k *seeker) { it.readers = delist(it.readers, k, byReads) }
