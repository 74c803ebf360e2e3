package transfer

import (
	"fmt"
	"time"
)

// because makes a cause. The text names what was wrong, the value, and what to do; never a token.
func because(r Reason, format string, args ...any) Cause {
	return Cause{Reason: r, Text: fmt.Sprintf(format, args...)}
}

// duration formats a duration for people.
func duration(t Time) string {
	d := time.Duration(t)
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	default:
		return d.Round(100 * time.Millisecond).String()
	}
}

// digest formats a content digest for people.
func digest(d []byte) string {
	if len(d) == 0 {
		return "none"
	}
	return fmt.Sprintf("%x", d)
}

// items formats a number of items.
func items[T ~int | ~uint64](n T) string {
	if n == 1 {
		return "1 item"
	}
	return fmt.Sprintf("%d items", n)
}

// short formats a key for people; a long one is cut.
func short[T ~string | ~[]byte](key T) string {
	if len(key) > 64 {
		return fmt.Sprintf("%q...", key[:61])
	}
	return fmt.Sprintf("%q", key)
}
