// Package simulation runs a whole fleet in one goroutine: the real machines of membership, shard and plan, on clocks, a
// network and an API server that are made up, under faults that are drawn from a seed. It has tests only.
//
// A run is a function of its seed. It begins with a fresh fleet, lets faults happen for one to three minutes of simulated
// time, stops them, and waits until every slot is held by a session that lives. What is drawn: which faults a run has at
// all, and when; delays, losses and repetitions of requests; how far each watch lags; clock rates and steps of wall
// clocks; who leads, also two at once or nobody. Each session works on its slots through the same checks as in the real
// shell, and may be stopped between a check and a send.
//
// Two things are promised to a fleet beside what Config says: nobody restores etcd within less than the fence while
// sessions run, and nobody sets a wall clock back around a suspension of its machine. Without these, two sessions can be
// entitled for as long as a fence.
//
// The checker sees everything at once, and asserts after each step and each write:
//
//   - no two sessions are entitled to a slot;
//   - who acquires a slot finds nothing of it in flight with a session that was running all the time;
//   - a slot is taken from a holder only when that is dead for good, and each acquisition has an epoch of its own;
//   - every update carries UID and resourceVersion, and nobody makes a session Lease twice;
//   - a session ends for a stated reason alone, one that leaves holds nothing, and an API server that was away ends none;
//   - in the end every slot has a holder that lives, is preferred and may act.
//
// To replay a seed, with its story: go test ./shard/simulation -run TestFaults -seed=17. To run others:
// -seeds=100000 -first=1000.
//
// That the checker can fail is tested too: environments that break a promise on which the protocol rests are found out.
package simulation
