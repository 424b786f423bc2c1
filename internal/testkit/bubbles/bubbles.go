package bubbles

import (
	"context"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// Main runs the tests of a package, and fails when they leave goroutines behind. It is for
// TestMain.
func Main(m goleak.TestingM) {
	IgnoreErrors()
	goleak.VerifyTestMain(m)
}

// IgnoreErrors has client-go neither print the errors that it handles by itself nor wait after
// them, in the whole process.
func IgnoreErrors() {
	for i := range utilruntime.ErrorHandlers {
		utilruntime.ErrorHandlers[i] = func(context.Context, error, string, ...any) {}
	}
}
