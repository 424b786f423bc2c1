// Package tasks runs tasks that begin and end while a process works, such as watches that are needed for some time.
//
// Guarantees: a task that has ended before it was started is never started; Run returns only when all tasks have.
// Not guaranteed: that a task that was ended has returned. Its context is cancelled.
package tasks
