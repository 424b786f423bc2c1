//go:build !linux

package vm

import (
	"context"
	"errors"
	"io"
)

// Main says that there are no machines on this system.
func Main(context.Context, string, []string, io.Writer) error {
	return errors.New("machines with a real kubelet need Linux")
}
