// Package apitime keeps the time of a cluster, as its API server shows it in the header Date of each answer.
//
// Deadlines count from times on objects: an API server has set some of them (creation and deletion timestamps), and other replicas the rest.
// Compared with the clock of this process they are wrong by as much as that differs from the clocks of the others: a machine would be given up
// some minutes early, or a new object would count as an old one. So every time that is written to an object of a cluster, or compared with one
// from there, is the time of the cluster.
//
// Guarantee: a Clock is that of its API server to within Tolerance and the duration of a request, from the first answer on, however wrong the
// clock of the process is. Objects are known by answers only, so none is compared before. Where both clocks are equal to within Tolerance a Clock
// is that of the process, so that answers do not move it. Between two corrections it runs as the monotonic clock of the process does: a wall clock
// that is set has no effect, and differences of two times are durations. After a suspension of the machine, in which that clock stands still, the
// next answer corrects the Clock at once; after the clock of the API server was set, the next that arrives when none has agreed for 30 s.
//
// Not guaranteed: anything where no answer has a Date, as behind a proxy that removes it. Where the API servers of a cluster differ from each
// other, the Clock stays at the one that it was first set to while that answers; Ahead shows by how much it differs from the clock of the process.
//
// Before such a correction, times that are written or compared are wrong by as much. LastJump reports it, for deadlines that count from times that
// were written before.
package apitime
