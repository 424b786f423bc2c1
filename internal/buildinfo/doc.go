// Package buildinfo returns what is known about the build of the binary: version, commit, date and Go.
//
// What the linker has set goes before what Go has recorded of the module and of the checkout. What neither knows is Unknown,
// as in a binary that was built with -buildvcs=false; nothing is guessed.
package buildinfo
