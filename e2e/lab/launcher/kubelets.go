package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// RequireKubeletVariable is an environment variable; with the value 1 a lab does not start where
// real kubelets cannot.
const RequireKubeletVariable = "LAB_REQUIRE_KUBELET"

// kubeletCommand returns the command by which cloudsim boots a VM with a real kubelet; "" where the
// machine does not allow that. It is an error where they are required, by the environment or for
// Nodes of the lab.
func (l *Launcher) kubeletCommand(ctx context.Context) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program, which boots VMs: %w", err)
	}
	output, err := exec.CommandContext(ctx, self, "vm", "--check").CombinedOutput()
	images := l.options.folder().path(imagesDir)
	reason := strings.TrimSpace(string(output))
	switch _, ran := errors.AsType[*exec.ExitError](err); {
	case err != nil && !ran:
		return "", fmt.Errorf("checking whether real kubelets can run: %w", err)
	case err == nil && strings.ContainsAny(self+images+l.options.Bin, " \t\n"):
		reason = "cloudsim splits its command at spaces, and they occur in " + self + ", " + images + " or " + l.options.Bin
	case err == nil:
		command := self + " vm --images=" + images
		if l.options.MachineConfiguration {
			command += " --daemon=" + l.options.binary(daemonBinary) + " --daemon-flags=" + strings.Join(strings.Fields(l.options.DaemonFlags), ",")
		}
		return command, nil
	}
	why := "real kubelets cannot run here, so all Nodes are simulated: " + reason
	if os.Getenv(RequireKubeletVariable) == "1" {
		return "", fmt.Errorf("%s=1: %s", RequireKubeletVariable, why)
	}
	if l.options.Nodes > 0 {
		return "", fmt.Errorf("--nodes=%d: %s", l.options.Nodes, why)
	}
	l.say(why)
	return "", nil
}
