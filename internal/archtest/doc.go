// Package archtest has the rules of this repository that a compiler does not check, as tests: which
// package may import which, what a pure package may use, how long files and functions may be, where
// names of the API are written, and that the documentation names things that exist.
//
// A rule is a function from the sources to findings. rules_test.go lists all of them, each with a
// piece of code that it must find, so that a rule cannot stop to find anything.
// docs/architecture.md gives the reasons.
//
// Not checked here: what a linter checks (.golangci.yml) and whether generated code is current
// (hack/verify.sh).
package archtest
