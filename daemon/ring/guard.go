package ring

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
)

// ErrIndex says that the other side gave an impossible index or offset. It is permanent.
var ErrIndex = errors.New("ring index violated")

// ErrFault says that shared memory was not there when it was touched. It is permanent.
var ErrFault = errors.New("ring memory faulted")

// guard runs f, which touches shared memory, and turns a memory fault into ErrFault. f must not call out of this package.
func guard(f func()) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			// Only a fault at a real address has Addr; anything else is a bug of ours and stays a panic.
			fault, ok := r.(interface {
				runtime.Error
				Addr() uintptr
			})
			if !ok {
				panic(r)
			}
			err = fmt.Errorf("%w: %w", ErrFault, error(fault))
		}
	}()
	f()
	return nil
}
