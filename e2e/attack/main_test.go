//go:build e2e

package attack

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// parallelCases is large, because cases mostly wait.
const parallelCases = "32"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", parallelCases); err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
