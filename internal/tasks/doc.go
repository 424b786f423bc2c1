// Package tasks runs what begins and ends while a process works, as watches do that somebody needs for a while.
//
// Guarantees: a task that has ended before it was started is never started; Run returns only when all tasks have.
// Not guaranteed: that a task that was ended has returned. It is told to, by its context.
package tasks
