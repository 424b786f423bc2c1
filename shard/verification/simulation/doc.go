// Package simulation runs a whole fleet in one goroutine: the real code of membership,
// shard/session/protocol and shard/assignment, with simulated clocks, a simulated network and API
// server, under faults that are drawn from a seed. It has tests only.
//
// A run is a function of its seed. It begins with a new fleet, lets faults occur for one to three
// minutes of simulated time, ends them, and waits until every slot is held by a living session.
// What is drawn: which kinds of faults a run has, and when; delays, losses and repetitions of
// requests; the lag of each watch; clock rates and steps of wall clocks; which process leads, also
// two at once or none. Each session works on its slots through the same checks as the product does,
// and may be stopped between a check and a send.
//
// Two things are promised to a fleet in addition to what Config states: etcd is not restored within
// less than the fence while sessions run, and a wall clock is not set back around a suspension of
// its machine. Without these, two sessions can be entitled for as long as a fence.
//
// The checker observes everything, and asserts after each step and each write:
//
//   - no two sessions are entitled to a slot;
//   - a session that acquires a slot finds nothing of it in flight with a session that was running
//     all the time;
//   - a slot is taken over only from a holder that is permanently dead, and each acquisition has
//     its own epoch;
//   - every update carries UID and resourceVersion, and no session creates its session Lease twice;
//   - a session ends only for a stated reason, one that leaves holds nothing, and an unavailable
//     API server ends none;
//   - in the end every slot is held by the session of its assigned replica, which lives and may
//     act.
//
// TestMovesEndWhereListsAreSlowOrFail has other faults: the lists from which slots open, and those
// of work, are slow or fail.
//
// To replay a seed, with its story: go test ./shard/verification/simulation -run TestFaults
// -seed=17. To run others: -seeds=100000 -first=1000.
//
// That the checker can fail is tested too: it finds violations in environments that break a promise
// on which the protocol relies.
package simulation
