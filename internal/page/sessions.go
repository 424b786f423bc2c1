package page

import (
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// sessionFor is how long a login is valid, and idleFor how long without a request.
	sessionFor, idleFor = 12 * time.Hour, time.Hour
	// mostSessions is how many logins are valid at a time, and sessionsOfUser how many of one user.
	// One more ends the one that was used the longest ago, of those of the user where these are too
	// many.
	mostSessions, sessionsOfUser = 100, 8
)

// sessions are the logins of this process. It is safe for concurrent use.
type sessions struct {
	clock clock.PassiveClock

	mu  sync.Mutex
	all map[[sha256.Size]byte]*session // by the hash of what the cookie has, so that a lookup takes the same time for all
}

// session is one login.
type session struct {
	user, token string
	begun, used time.Time
}

func newSessions(c clock.PassiveClock) *sessions {
	return &sessions{clock: c, all: map[[sha256.Size]byte]*session{}}
}

// begin returns the value of the cookie of a new login, of a user by a token.
func (s *sessions) begin(user, token string) string {
	id, now := rand.Text(), s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	s.makeRoom(sessionsOfUser, func(one *session) bool { return one.user == user })
	s.makeRoom(mostSessions, func(*session) bool { return true })
	s.all[sha256.Sum256([]byte(id))] = &session{user: user, token: token, begun: now, used: now}
	return id
}

// makeRoom ends the login that was used the longest ago, of those that count, if there is no room
// for one more. The caller must hold s.mu.
func (s *sessions) makeRoom(most int, counts func(one *session) bool) {
	var oldest [sha256.Size]byte
	var of *session
	found := 0
	for key, one := range s.all {
		if !counts(one) {
			continue
		}
		found++
		if of == nil || one.used.Before(of.used) {
			oldest, of = key, one
		}
	}
	if found >= most {
		delete(s.all, oldest)
	}
}

// token returns the token of a login; "" if it is not valid.
func (s *sessions) token(id string) string {
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	one := s.all[sha256.Sum256([]byte(id))]
	if one == nil {
		return ""
	}
	one.used = now
	return one.token
}

// end ends a login.
func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, sha256.Sum256([]byte(id)))
}

// expire ends logins that are not valid any more. The caller must hold s.mu.
func (s *sessions) expire(now time.Time) {
	for key, one := range s.all {
		if now.Sub(one.begun) >= sessionFor || now.Sub(one.used) >= idleFor {
			delete(s.all, key)
		}
	}
}
