package session

import (
	"log/slog"

	"github.com/kvpipe/kvpipe/internal/damper"
)

// comings bounds what is logged of sessions that come and go: anybody who may connect can do both a thousand times a
// second, and the journal, or whoever rotates files, would throw away what others should read. Users share an allowance
// if their numbers end alike: as many as users would be as many as an outsider likes. The zero value is ready, and safe
// for concurrent use.
type comings [64]damper.Flow

// due reports whether to log a record for everybody, and how many have not been logged so since the last.
func (c *comings) due(uid uint32) (tell bool, untold int) { return c[uid%uint32(len(c))].Due() }

// tell logs a record about the session: for everybody if it is due, else for whoever debugs.
func (s *session) tell(due bool, untold int, text string, attrs ...any) {
	damper.Record(s.log, slog.LevelInfo, due, untold, text, attrs...)
}
