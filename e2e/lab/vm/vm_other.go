//go:build !linux

package vm

import (
	"context"
	"errors"
	"io"
)

// Main returns an error: this system does not support machines.
func Main(context.Context, string, []string, io.Writer) error {
	return errors.New("machines with a real kubelet need Linux")
}
