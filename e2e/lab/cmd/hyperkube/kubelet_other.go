//go:build !linux

package main

import (
	"fmt"
	"os"
)

func runKubelet([]string) int {
	fmt.Fprintln(os.Stderr, "kubelet: it needs Linux")
	return 1
}
