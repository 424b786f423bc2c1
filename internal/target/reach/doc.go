// Package reach decides from the answers of an API server whether the server is away, and what that
// means for times. It is pure.
//
// An API server is away when it has not answered for longer than a timeout. One blip is nothing;
// while it is away, decisions that depend on it wait, and the time that passes counts against no
// machine and no drain.
//
// Guaranteed: a Fact depends only on the observations of this process and on differences between
// times of its own clock.
//
// Not guaranteed: that other replicas observe the same. A replica may have no connection to a
// server that others reach.
package reach
