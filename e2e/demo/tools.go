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

// tools runs kubectl and lab as a user of a lab would, in the repository's folder.
type tools struct {
	bin, repository string
	// lab is the lab's folder.
	lab string
}

// findTools finds the programs, before any process is started.
func findTools() (tools, error) {
	repository, err := harness.Repository()
	if err != nil {
		return tools{}, err
	}
	bin, err := harness.Bin()
	if err != nil {
		return tools{}, err
	}
	for _, program := range []string{"kubectl", "lab"} {
		if _, err := os.Stat(filepath.Join(bin, program)); err != nil {
			return tools{}, fmt.Errorf("find %s, which `make build` builds: %w", program, err)
		}
	}
	return tools{bin: bin, repository: repository}, nil
}

// kubectl returns what kubectl prints.
func (t tools) kubectl(ctx context.Context, args ...string) (string, error) {
	return t.run(ctx, "kubectl", args)
}

// manage runs a command of `lab` on the fleet.
func (t tools) manage(ctx context.Context, args ...string) error {
	_, err := t.answer(ctx, args...)
	return err
}

// answer returns what a command of `lab` prints.
func (t tools) answer(ctx context.Context, args ...string) (string, error) {
	return t.run(ctx, "lab", append(args, "--dir", t.lab))
}

func (t tools) run(ctx context.Context, program string, args []string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(t.bin, program), args...)
	cmd.Dir = t.repository
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+filepath.Join(t.lab, "admin.kubeconfig"),
		// The user's own settings are neither read nor changed.
		"KUBERC=off", "KUBECACHEDIR="+filepath.Join(t.lab, "kubectl-cache"),
	)
	// A Ctrl-C ends it through ctx, and not also from the terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	output, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, output)
	}
	return string(output), nil
}
