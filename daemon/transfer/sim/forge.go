package sim

import (
	"reflect"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// forger makes messages out of known ones: the best lies are nearly true.
type forger struct {
	c     *Cluster
	all   *forger                         // the forger that knows all peers' messages; nil: this is it
	heard map[reflect.Type][]transfer.Msg // the last messages of each kind
	seen  map[slot][]any                  // the last values of each slot
}

func newForger(c *Cluster, all *forger) *forger {
	return &forger{c: c, all: all, heard: map[reflect.Type][]transfer.Msg{}, seen: map[slot][]any{}}
}

// slot is the meaning of a message's field: all fields called Xfer name transfers.
type slot struct {
	name string
	of   reflect.Type
}

const maxSeen = 16

// madWords are the text of every cause that a mad node makes up.
const madWords = "as a mad node has it"

// kinds are the messages that a forger can make up.
var kinds = []transfer.Msg{
	&transfer.MsgLayout{}, &transfer.MsgTake{}, &transfer.MsgNeedLayout{}, &transfer.MsgParked{}, &transfer.MsgRefuse{}, &transfer.MsgGrant{}, &transfer.MsgGo{},
	&transfer.MsgSent{}, &transfer.MsgResend{}, &transfer.MsgEnd{}, &transfer.MsgEndAck{}, &transfer.MsgAbort{}, &transfer.MsgKey{}, &transfer.MsgKeyAck{},
	&transfer.MsgSeek{}, &transfer.MsgFound{}, &transfer.MsgSeekParked{}, &transfer.MsgSeekRefuse{}, &transfer.MsgUnbind{}, &transfer.MsgUnbindAck{},
}

// shallow copies a message, because machines change theirs.
func shallow(msg transfer.Msg) transfer.Msg {
	own := reflect.New(reflect.TypeOf(msg).Elem())
	own.Elem().Set(reflect.ValueOf(msg).Elem())
	return own.Interface().(transfer.Msg)
}

// learn remembers a message and the values of its fields.
func (f *forger) learn(msg transfer.Msg) {
	if f.all != nil {
		f.all.learn(msg)
	}
	v := reflect.ValueOf(msg).Elem()
	f.heard[v.Type()] = last(append(f.heard[v.Type()], shallow(msg)), maxSeen)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			continue
		}
		s := slot{v.Type().Field(i).Name, v.Field(i).Type()}
		f.seen[s] = last(append(f.seen[s], v.Field(i).Interface()), maxSeen)
	}
}

func last[T any](list []T, n int) []T { return list[max(len(list)-n, 0):] }

// again returns a message that was heard before, of any kind; nil: there is none.
func (f *forger) again() transfer.Msg {
	var known [][]transfer.Msg
	for _, k := range kinds {
		if heard := f.heard[reflect.TypeOf(k).Elem()]; heard != nil {
			known = append(known, heard)
		}
	}
	if known == nil {
		return nil
	}
	return shallow(pick(&f.c.rng, pick(&f.c.rng, known)))
}

// twist changes some fields of a copy of a message; nil: nothing well formed came of it.
func (f *forger) twist(msg transfer.Msg) transfer.Msg {
	own := shallow(msg)
	v := reflect.ValueOf(own).Elem()
	for range f.c.rng.in(1, 3) {
		i := 0 // the field that says what it is about
		if f.c.rng.hit(60) {
			i = f.c.rng.n(v.NumField())
		}
		f.change(v.Field(i), v.Type().Field(i).Name)
	}
	return wellFormed(own)
}

// invent makes a message of known and strange values; nil: nothing well formed came of it.
func (f *forger) invent() transfer.Msg {
	own := shallow(pick(&f.c.rng, kinds))
	v := reflect.ValueOf(own).Elem()
	for i := range v.NumField() {
		if f.c.rng.hit(90) {
			f.change(v.Field(i), v.Type().Field(i).Name)
		}
	}
	return wellFormed(own)
}

// change gives a field a value that a field of that name had, or one that no machine would give it.
func (f *forger) change(v reflect.Value, name string) {
	r := &f.c.rng
	known := f.seen[slot{name, v.Type()}]
	if f.all != nil && (len(known) == 0 || r.hit(15)) {
		known = f.all.seen[slot{name, v.Type()}]
	}
	switch {
	case name == "Key" && r.hit(20) && len(f.c.requests) > 0:
		v.SetBytes([]byte(pick(r, f.c.requests).key))
	case name == "Name" && r.hit(20) && len(f.c.pipes) > 0:
		if p := pick(r, f.c.pipes); p.token != nil {
			v.SetString(p.name)
		}
	case len(known) > 0 && r.hit(75):
		v.Set(reflect.ValueOf(pick(r, known)))
		if v.CanUint() && r.hit(20) {
			f.distort(v)
		}
	default:
		f.distort(v)
	}
}

// distort gives a field a strange value.
func (f *forger) distort(v reflect.Value) {
	r := &f.c.rng
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.number(uint64(v.Int())) >> 1))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		spare := 64 - v.Type().Bits()
		v.SetUint(f.number(v.Uint()) << spare >> spare)
	case reflect.String:
		v.SetString(v.String() + "?")
	case reflect.Array:
		f.distort(v.Index(r.n(v.Len())))
	case reflect.Struct:
		i := r.n(v.NumField())
		f.change(v.Field(i), v.Type().Field(i).Name)
	case reflect.Slice:
		f.distortList(v)
	case reflect.Map:
		v.SetZero()
	case reflect.Pointer:
		if take, ok := v.Interface().(*transfer.MsgTake); ok && take != nil {
			own := *take
			v.Set(reflect.ValueOf(&own))
			f.distort(v.Elem())
		}
	}
}

// distortList makes a list shorter or longer, or changes one element. It changes a copy, since others may have the
// same list.
func (f *forger) distortList(v reflect.Value) {
	r, n := &f.c.rng, v.Len()
	if n == 0 {
		return
	}
	own := reflect.MakeSlice(v.Type(), n, 2*n)
	reflect.Copy(own, v)
	switch {
	case r.hit(30):
		own = own.Slice(0, r.n(n))
	case r.hit(20) && n < 32:
		own = reflect.AppendSlice(own, v)
	default:
		f.distort(own.Index(r.n(n)))
	}
	v.Set(own)
}

// number returns a number near was, a small one or an absurd one.
func (f *forger) number(was uint64) uint64 {
	r := &f.c.rng
	switch r.n(4) {
	case 0:
		return uint64(r.n(5))
	case 1:
		return ^uint64(0) >> r.n(64)
	}
	return was + uint64(r.n(16)) - 8
}
