package memory

import "strings"

// Shares counts what owners have of something of which each may have a part, and what users have: a user may be any number
// of owners, since it may make cgroups. The zero value counts nothing. Methods must not be called at the same time.
type Shares[N int | uint64] struct{ owners, users map[string]N }

// Owner returns what an owner has.
func (s *Shares[N]) Owner(owner string) N { return s.owners[owner] }

// User returns what all owners of that owner's user have.
func (s *Shares[N]) User(owner string) N { return s.users[userOf(owner)] }

// Add counts n more of an owner.
func (s *Shares[N]) Add(owner string, n N) {
	if s.owners == nil {
		s.owners, s.users = map[string]N{}, map[string]N{}
	}
	s.owners[owner] += n
	s.users[userOf(owner)] += n
}

// Sub counts n less of an owner, which has as many.
func (s *Shares[N]) Sub(owner string, n N) {
	less(s.owners, owner, n)
	less(s.users, userOf(owner), n)
}

// less keeps no entry of who has nothing left.
func less[N int | uint64](of map[string]N, who string, n N) {
	if of[who] -= n; of[who] == 0 {
		delete(of, who)
	}
}

// userOf returns the user of an owner: what comes before the first comma of its name.
func userOf(owner string) string {
	user, _, _ := strings.Cut(owner, ",")
	return user
}
