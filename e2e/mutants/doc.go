// Command mutants measures the tests of the protocol by mutation: it removes or weakens one rule of
// the code at a time and runs the tests, from the cheapest to the most expensive, until one fails.
// A mutant that no test kills survives. It is started by `make mutants`; docs/mutants.md has the
// figures.
//
// All mutants of a package are compiled into one test binary by `go test -overlay`, so the work
// tree is never changed: each mutated expression calls a generated package that reports whether the
// environment variable MUTANT selects the mutant. A mutant that does not compile is left out.
//
// A mutant has an ID that consists of package, function, operator and the mutated source, so that
// edits elsewhere keep it. equivalent.tsv has the mutants that no test can kill, with the reason:
// the mutated code differs in nothing that can be observed.
//
// Results are kept in .mutants/ by the content of the test binary: a second run repeats only what
// has changed.
//
// It does not mutate constants, package-level variables, logging, metrics and locking.
package main
