// Package buildinfo returns what is known about the build of the binary: version, commit, date and
// Go.
//
// What the linker has set takes precedence over what Go has recorded of the module and of the
// checkout. A value that neither has is Unknown, as in a binary that was built with
// -buildvcs=false; nothing is guessed.
package buildinfo
