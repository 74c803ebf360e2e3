package driver

import (
	"context"
	"log/slog"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/damper"
)

// execute performs one effect. It waits for no client, no peer and no large copy. long: it may have taken microseconds.
func (d *Driver) execute(e transfer.Effect) (long bool) {
	switch e := e.(type) {
	case transfer.Complete:
		d.complete(e)
	case *transfer.Complete:
		d.complete(*e)
	case transfer.Rouse:
		d.rouse(e)
	case transfer.Granted:
		d.cfg.Sessions.Granted(e)
	case transfer.LayerReady:
		d.cfg.Sessions.LayerReady(e)
	case transfer.WatchProgress:
		d.cfg.Sessions.WatchProgress(e)
	case transfer.EndSession:
		d.cfg.Sessions.EndSession(e)
	case transfer.SessionOrphaned:
		d.cfg.Sessions.SessionOrphaned(e)
	case transfer.Brought:
		d.cfg.Sessions.Brought(e)
	case transfer.SessionDrained:
		d.cfg.Sessions.SessionDrained(e.Session)
	case transfer.RegionDrained:
		d.cfg.Sessions.RegionDrained(e)
	case transfer.Dial:
		d.cfg.Peers.Dial(e.Hint)
	case transfer.Send:
		d.cfg.Peers.Queue(e.Node, e.Epoch, e.Msg, e.More)
	case *transfer.MoveNow:
		d.moveNow(e)
		return true
	case transfer.Yield:
		d.answerNext(transfer.Resume{})
	case transfer.MakePlan:
		d.makePlan(e)
		return true
	case transfer.Expect:
		d.expect(e)
	case transfer.Post:
		d.post(e)
		return true
	case transfer.ReadInline:
		d.readInline(e)
		return true
	case transfer.WriteInline:
		d.writeInline(e)
		return true
	case transfer.Fence:
		d.fence(e.Leg)
	case transfer.Forget:
		d.forget(e.Leg)
	case transfer.ArmTimer:
		d.arm(e.At)
	case transfer.Log:
		d.record(e)
	}
	return false
}

// record logs what the machine says. What is normal, or may be had as often as a client likes, is logged for everybody no
// more often than damper.Flow allows, and else for whoever debugs.
func (d *Driver) record(e transfer.Log) {
	level := slog.Level(e.Level)
	if level != slog.LevelInfo && !e.Often {
		d.log.Log(context.Background(), level, e.Text, e.Attrs...)
		return
	}
	f := d.told[e.Text]
	if f == nil {
		f = new(damper.Flow)
		d.told[e.Text] = f
	}
	due, untold := f.Due()
	damper.Record(d.log, level, due, untold, e.Text, e.Attrs...)
}

func (d *Driver) arm(at transfer.Time) {
	if at == 0 {
		d.timer.Stop()
		return
	}
	d.timer.Reset(max(time.Duration(at-d.Now()), 0))
}
