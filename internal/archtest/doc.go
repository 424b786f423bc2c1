// Package archtest holds the rules of this repository that a compiler does not know, as tests: who may import whom, what
// a pure package may touch, how long files and functions get, where names of the API are written, and that the
// documentation names things that exist.
//
// A rule is a function from the sources to findings. rules_test.go lists all of them, each with a piece of code that
// it must find, so that a rule cannot fall silent. docs/architecture.md gives the reasons.
//
// Not checked here: what a linter checks (.golangci.yml) and whether generated code is current (hack/verify.sh).
package archtest
