package main

import (
	"context"
	"fmt"
	"os"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/kubelet"
)

func runKubelet([]string) int {
	if err := kubelet.Main(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet:", err)
		return 1
	}
	return 0
}
