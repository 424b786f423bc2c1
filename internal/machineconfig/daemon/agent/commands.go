package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

const (
	// commandWithin bounds one command.
	commandWithin = 5 * time.Minute
	// maxOutput bounds what is kept of the output of a command.
	maxOutput = 1000
)

// Command is a program with its arguments, and what it reads.
type Command struct {
	Args  []string
	Stdin []byte
}

// Runner runs commands. It returns an error with the end of their output.
type Runner interface {
	Run(ctx context.Context, c Command) error
}

// Exec runs commands as processes. One that has begun is not ended with its context: it is a part
// of a change.
type Exec struct{}

var _ Runner = Exec{}

// Run is Runner's.
func (Exec) Run(ctx context.Context, c Command) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...) //nolint:gosec // flags and constants name the program
	cmd.Stdin = bytes.NewReader(c.Stdin)
	cmd.WaitDelay = time.Second // of a child that keeps the output open
	output := &tail{}
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", c.Args[0], err, bytes.TrimSpace(output.kept))
	}
	return nil
}

// tail keeps the end of what is written to it.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if excess := len(t.kept) - maxOutput; excess > 0 {
		t.kept = append(t.kept[:0], t.kept[excess:]...)
	}
	return len(p), nil
}

// act does what has to be done after a change of files, and what hooks do. Reload of systemd is
// first, so that a restart uses new units. At the first boot a unit that has not started is left to
// the boot: to start it here could wait for this very process.
func (a *Agent) act(ctx context.Context, actions plan.Actions) error {
	var commands [][]string
	restart, reload := "restart", "reload"
	if a.isInitial {
		restart, reload = "try-restart", "try-reload-or-restart"
	}
	if actions.DaemonReload {
		commands = append(commands, []string{"daemon-reload"})
	}
	for _, unit := range actions.Restart {
		commands = append(commands, []string{restart, "--", unit})
	}
	for _, unit := range actions.Reload {
		commands = append(commands, []string{reload, "--", unit})
	}
	for _, args := range commands {
		if !a.cfg.Systemd {
			a.log.Info("Skipping systemctl because systemd is not used", "args", args)
			continue
		}
		if err := a.cfg.Runner.Run(ctx, Command{Args: append([]string{"systemctl"}, args...)}); err != nil {
			return fmt.Errorf("after the change of files: %w", err)
		}
	}
	return nil
}

// callHooks has hooks apply the fields that they have claimed. They may be called again after a
// crash.
func (a *Agent) callHooks(ctx context.Context, claims []plan.Claim) error {
	for _, claim := range claims {
		input, err := json.Marshal(claim)
		if err != nil {
			return fmt.Errorf("hook for %s: %w", claim.Field, err)
		}
		c := Command{Args: []string{filepath.Join(a.cfg.HookDir, claim.Field)}, Stdin: input}
		if err := a.cfg.Runner.Run(ctx, c); err != nil {
			return fmt.Errorf("hook for %s: %s", claim.Field, bounded.Text(err.Error(), maxOutput))
		}
	}
	return nil
}

// reversed returns claims with the old and the new value exchanged, in the reverse order.
func reversed(claims []plan.Claim) []plan.Claim {
	back := make([]plan.Claim, 0, len(claims))
	for i := range claims {
		c := claims[len(claims)-1-i]
		back = append(back, plan.Claim{Field: c.Field, Old: c.New, New: c.Old})
	}
	return back
}

// reboot reboots the machine. The command may return before the machine ends.
func (a *Agent) reboot(ctx context.Context) error {
	if len(a.cfg.RebootCommand) == 0 {
		return ErrRebootNeeded
	}
	if err := a.cfg.Runner.Run(ctx, Command{Args: a.cfg.RebootCommand}); err != nil {
		return fmt.Errorf("reboot: %w", err)
	}
	return nil
}
