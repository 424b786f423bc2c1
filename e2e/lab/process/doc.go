// Package process identifies operating system processes by more than their number: a number is used again once its process
// has ended, a number together with the time of its start is not (until the machine boots again, which ID records too). Its
// information comes from the system, so that it also covers processes that other programs have started.
//
// It never signals a process that it has not identified first, and never looks for processes by their name.
package process
