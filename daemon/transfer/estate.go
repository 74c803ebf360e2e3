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

// testator is who leaves something behind.
type testator struct {
	owner string
	user  uint32
}

func (s *session) testator() testator { return testator{s.engine.key.owner, s.user} }

// room says whether somebody may leave n more behind, where an owner may leave most.
func (x *estates) room(who testator, n, most int) bool {
	return x.owners[who.owner]+n <= most && x.users[who.user]+n <= maxEstates*most
}

// add counts n more of somebody, or less.
func (x *estates) add(who testator, n int) {
	if n == 0 {
		return
	}
	if x.owners[who.owner] += n; x.owners[who.owner] == 0 {
		delete(x.owners, who.owner)
	}
	if x.users[who.user] += n; x.users[who.user] == 0 {
		delete(x.users, who.user)
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
