package session

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"syscall"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// identity is who a session is, by what the kernel and the client say.
type identity struct {
	PID    int    // 0: not visible from here
	UID    uint32 // of the process that connected
	Owner  string // uid and cgroup
	pidfd  int    // -1: not visible; the session closes it
	Engine string

	Instance         string
	Library          string
	Role             transfer.Role
	Rank             uint32
	TPWorld, PPWorld uint32
}

// identify checks the names in a HELLO and asks the kernel about the rest.
func (v *Server) identify(conn *net.UnixConn, cred sys.Cred, h *ring.Hello) (id identity, err error) {
	id = identity{PID: cred.PID, UID: cred.UID, pidfd: -1, Role: transfer.Role(h.Role)}
	for _, f := range []struct {
		to    *string
		field []byte
		name  string
	}{{&id.Engine, h.Engine[:], "engine_id"}, {&id.Instance, h.Instance[:], "instance"}, {&id.Library, h.Library[:], "library"}} {
		if *f.to, err = ring.String(f.field, f.name); err != nil {
			return id, invalid("hello: %v", err)
		}
	}
	if id.Engine == "" {
		return id, invalid("hello: engine_id is empty: name the engine")
	}
	if err := id.setRank(h); err != nil {
		return id, err
	}
	id.Owner = fmt.Sprintf("uid %d, not visible", cred.UID)
	id.pidfd, err = sys.PeerPidfd(conn, cred, v.cfg.ProcRoot)
	if err != nil && !errors.Is(err, sys.ErrNoPidfd) {
		return id, unseen(shown(err, !errors.Is(err, syscall.ESRCH)))
	}
	if id.pidfd < 0 || cred.PID <= 0 {
		// Another pid namespace: its cgroup cannot be read. Pidfds know no namespaces, but not every kernel can give
		// this one; without it, only the end of the connection will tell of its death.
		return id, nil
	}
	group, err := sys.Cgroup(v.cfg.ProcRoot, cred.PID)
	alive, e := sys.PidfdAlive(id.pidfd)
	if alive = alive && e == nil; err == nil && !alive {
		err = errors.New("the process has ended") // and its pid may be another process's by now
	}
	if err != nil {
		_ = sys.Close(id.pidfd)
		return id, unseen(shown(err, alive))
	}
	if ring.CheckText([]byte(group), "cgroup") != nil {
		group = strconv.Quote(group) // the kernel allows any bytes; logs and the state file, which must give the same bytes back, do not
	}
	id.Owner = fmt.Sprint("uid ", cred.UID, ownerGroup, group)
	return id, nil
}

const ownerGroup = ", cgroup "

// errHidden: the client lives, but /proc does not show it to the daemon. Its user alone would not tell its engine from
// others, so it has to wait until it is shown.
var errHidden = errors.New("the process runs, but this daemon's /proc does not show it: let the daemon's user see other users' processes " +
	"(/proc without hidepid=, or with gid= a group of that user; no ProtectProc= in the unit)")

// shown adds errHidden to an error of reading about a process in /proc, if that is the reason.
func shown(err error, alive bool) error {
	if alive && !errors.Is(err, sys.ErrForbidden) && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)) {
		return fmt.Errorf("%w: %w", err, errHidden)
	}
	return err
}

// unseen is the refusal of a client that cannot be looked at: it has ended, unless it is the daemon that lacks
// something.
func unseen(err error) error {
	if lack(err) != "" {
		return fmt.Errorf("hello: %w", err)
	}
	return refuse(transfer.PeerGone, "hello: %v", err)
}

func (id *identity) setRank(h *ring.Hello) error {
	id.TPWorld, id.PPWorld = max(h.TPWorld, 1), max(h.PPWorld, 1)
	if id.TPWorld > maxWorld || id.PPWorld > maxWorld || uint64(id.TPWorld)*uint64(id.PPWorld) > maxWorld {
		return invalid("hello: tp_world is %d and pp_world %d: the limit is %d ranks", h.TPWorld, h.PPWorld, maxWorld)
	}
	switch id.Role {
	case transfer.Scheduler:
		id.Rank = transfer.NoRank
	case transfer.Endpoint:
		id.Rank, id.TPWorld, id.PPWorld = 0, 1, 1
	case transfer.Worker:
		if h.TPRank >= id.TPWorld || h.PPRank >= id.PPWorld {
			return invalid("hello: tp_rank is %d of %d and pp_rank %d of %d: must be below", h.TPRank, id.TPWorld, h.PPRank, id.PPWorld)
		}
		id.Rank = h.TPRank + h.PPRank*id.TPWorld
	default:
		return invalid("hello: role is %d: must be 1 (worker), 2 (scheduler) or 3 (endpoint)", h.Role)
	}
	return nil
}
