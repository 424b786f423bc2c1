package main

// switchPackage is the import path, below the module's, of the generated package that reports which
// mutant is on.
const switchPackage = "e2e/mutants/switched"

// switchSource is that package. It exists in the overlay only.
const switchSource = `// Package switched reports which mutant is on.
package switched

import (
	"cmp"
	"os"
	"strconv"
)

var on, _ = strconv.Atoi(os.Getenv("MUTANT"))

func On(n int) bool { return n == on }

func Keep[T any](n int, v, old T) T {
	if n == on {
		return old
	}
	return v
}

func Zero[T any](n int, v T) (zero T) {
	if n == on {
		return zero
	}
	return v
}

func Operand[T any](n, i int, v, a, b T) T {
	switch {
	case n != on:
		return v
	case i == 0:
		return a
	}
	return b
}

func Less[T cmp.Ordered](n int, a, b T) bool         { return a < b || n == on && a == b }
func LessEqual[T cmp.Ordered](n int, a, b T) bool    { return a < b || n != on && a == b }
func Greater[T cmp.Ordered](n int, a, b T) bool      { return a > b || n == on && a == b }
func GreaterEqual[T cmp.Ordered](n int, a, b T) bool { return a > b || n != on && a == b }
`
