package main

import (
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/buildinfo"
)

func TestVersionIsPrintedByFlagAndCommand(t *testing.T) {
	want := buildinfo.Read().String() + "\n"
	for _, arg := range []string{"version", "--version"} {
		if out, errs, code := executed(t, nil, arg); out != want || errs != "" || code != 0 {
			t.Errorf("%s: want %q, got %q, %q, exit code %d", arg, want, out, errs, code)
		}
	}
}
