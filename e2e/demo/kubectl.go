package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// kubectl runs kubectl as a user of a lab would, in the repository's folder.
type kubectl struct {
	program, repository string
	// lab is the lab's folder.
	lab string
}

// findKubectl looks for the program, before anything is started that would have to be stopped.
func findKubectl() (kubectl, error) {
	repository, err := harness.Repository()
	if err != nil {
		return kubectl{}, err
	}
	bin, err := harness.Bin()
	if err != nil {
		return kubectl{}, err
	}
	program := filepath.Join(bin, "kubectl")
	if _, err := os.Stat(program); err != nil {
		return kubectl{}, fmt.Errorf("find kubectl, which `make build` makes: %w", err)
	}
	return kubectl{program: program, repository: repository}, nil
}

// run returns what kubectl prints.
func (k kubectl) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, k.program, args...)
	cmd.Dir = k.repository
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+filepath.Join(k.lab, "admin.kubeconfig"),
		// Nothing of the user's own settings, and nothing left behind among them.
		"KUBERC=off", "KUBECACHEDIR="+filepath.Join(k.lab, "kubectl-cache"),
	)
	// A Ctrl-C comes through ctx, and not from the terminal as well.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	output, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return string(output), nil
}
