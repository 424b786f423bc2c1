// Package disktest has what tests of the daemon do to file systems: Model is a disk that loses what
// was not synchronized when its power fails, and Faulty has calls of any FS fail, or ends the
// process at them.
//
// Model loses as much as POSIX permits. A file that was not synchronized has its old content, its
// new one, or a beginning of it. Each name in a folder that was not synchronized has its last
// durable entry or any later one, independently of all other names: renames are reordered, and a
// file may have both of its names, or none.
package disktest
