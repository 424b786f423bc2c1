// Package apianswers has what answers of an API server show in addition to their objects: whether a
// server has written them, its time, and whether it answers lists.
//
// Check rejects answers that no API server has written: a proxy without a route, the default
// backend of an ingress or a captive portal answers in the place of an API server, with a 404 that
// would be the absence of an object, or with a 200 that would be an accepted deletion or an empty
// list.
//
// Guarantee: a client of a configuration that Check has returned gets an error instead of such an
// answer, whose status 502 proves nothing about objects and requests: none of NotFound, Gone,
// Conflict, AlreadyExists, Forbidden, Unauthorized, Invalid and TooManyRequests is true of it.
//
// An API server itself writes some answers that are no object of Kubernetes, and they are rejected,
// too. One is "404 page not found", for a resource that it does not serve: it is not the absence of
// objects either, because a CustomResourceDefinition that is deleted, or not served for a moment,
// has it.
//
// Not guaranteed: that an object of Kubernetes which another server writes is detected, nor an
// event of a watch that a proxy has invented.
//
// A ListHealth records whether an API server answers lists: where small requests are answered and
// large ones are not, established watches still deliver, and what is listed live before decisions
// with consequences is not known.
//
// Guaranteed: only lists of the resources that were named count, and a list that is canceled is
// evidence of nothing.
//
// Not guaranteed: that lists of other resources are answered, or that a list that is slow is.
//
// A Clock keeps the time of a cluster, as its API server shows it in the header Date of each
// answer.
//
// Deadlines count from times on objects: an API server has set some of them (creation and deletion
// timestamps), and other replicas the rest. Compared with the clock of this process they are wrong
// by as much as that differs from the clocks of the others: a machine would be given up some
// minutes early, or a new object would count as an old one. So every time that is written to an
// object of a cluster, or compared with one from there, is the time of the cluster.
//
// Guarantee: a Clock is that of its API server to within ClockTolerance and the duration of a
// request, from the first answer on, however wrong the clock of the process is. Objects are known
// by answers only, so none is compared before. Where both clocks are equal to within ClockTolerance
// a Clock is that of the process, so that answers do not move it. Between two corrections it runs
// as the monotonic clock of the process does: a wall clock that is set has no effect, and
// differences of two times are durations. After a suspension of the machine, in which that clock
// stands still, the next answer corrects the Clock at once; after the clock of the API server was
// set, the next that arrives when none has agreed for 30 s.
//
// Not guaranteed: anything where no answer has a Date, as behind a proxy that removes it. Where the
// API servers of a cluster differ from each other, the Clock stays at the one that it was first set
// to while that answers; Ahead shows by how much it differs from the clock of the process.
//
// Before such a correction, times that are written or compared are wrong by as much. LastJump
// reports it, for deadlines that count from times that were written before.
package apianswers
