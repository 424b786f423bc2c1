// Package process knows operating system processes by something better than their number: a number is used again once
// its process has ended, a number together with the time of its start is not (until the machine boots again, which ID
// notes too). What it says comes from the system, so that it also holds for processes that somebody else started.
//
// It never signals a process that it has not identified first, and never looks for processes by their name.
package process
