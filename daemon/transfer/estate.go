package transfer

// What outlives its session counts against no limit of sessions: whoever dies and comes again can leave something behind
// each time. So what finished offers keep of dead sessions is bounded for each owner, in block ids of 4 bytes, and what
// would be beyond that ends with its session. A user may be any number of owners, since it may make cgroups, and has no
// more than four of them.
const (
	maxEstate  = 64 << 20 // of an owner (docs/operating.md has it)
	maxEstates = 4        // of a user, as many times that

	estateSession = 1024 // besides its table of holds
	estateView    = 64   // of its layout
	estateOffer   = 256  // besides its block ids
)

// estates counts what is left behind, by whom.
type estates struct {
	owners map[string]int
	users  map[uint32]int
}

func newEstates() estates { return estates{map[string]int{}, map[uint32]int{}} }

// room says whether n more of a session may be left behind.
func (x *estates) room(s *session, n int) bool {
	return x.owners[s.engine.key.owner]+n <= maxEstate && x.users[s.user]+n <= maxEstates*maxEstate
}

// add counts n more of a session, or less.
func (x *estates) add(s *session, n int) {
	if n == 0 {
		return
	}
	owner := s.engine.key.owner
	if x.owners[owner] += n; x.owners[owner] == 0 {
		delete(x.owners, owner)
	}
	if x.users[s.user] += n; x.users[s.user] == 0 {
		delete(x.users, s.user)
	}
}

// estate is what counts of a member, and of a session, if the offer outlives the session.
func (mb *member) estate(s *session) (own, of int) {
	if mb.by == s {
		own = int(mb.ids) + estateOffer
	}
	if len(s.orphans) == 0 && s.holds != nil {
		of = estateSession + estateView*len(s.layout.Views()) + s.holds.Size()
	}
	return own, of
}
