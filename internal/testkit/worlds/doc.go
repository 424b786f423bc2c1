// Package worlds decides how many generated worlds a test tries, and which.
//
// Tests that draw worlds from seeds try many of them, which takes minutes. So they have a short
// form (go test -short): for make test, and for the race detector, which would make them five times
// slower, and finds nothing more after the first few worlds.
//
// Guarantees: a test tries the same worlds each time, unless a seed is set; where the short form
// counts worlds by Some, it tries the first of those of the full one. Not guaranteed: that the
// short form finds what only few worlds show.
package worlds
