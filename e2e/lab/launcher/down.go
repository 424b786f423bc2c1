package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
)

const (
	// launcherTimeout is how long the launcher may take to end everything in order, which takes it a
	// second on an idle machine.
	launcherTimeout = 2 * time.Minute
	// crashTimeout is how long the processes of a dead launcher may take to end. They do not end in
	// order: an API server, for example, waits for its etcd, which is ending too.
	crashTimeout = time.Second
)

// Down ends everything that belongs to the lab in a folder, whether its launcher lives or not. Logs
// and data stay. If no process is left, it has no effect.
func Down(ctx context.Context, folder Folder, clk clock.WithTicker, say func(string)) error {
	if _, err := os.Stat(folder.path(stateFile)); absent(err) {
		say("there is no lab in " + string(folder))
		return nil
	}
	unlock, err := folder.lock(ctx, clk, say)
	if err != nil {
		return err
	}
	defer unlock()
	state, err := folder.ReadState()
	if err != nil {
		return fmt.Errorf("reading the processes to end: %w", err)
	}
	ended, err := endLauncher(ctx, state, clk)
	if err != nil {
		return err
	}
	endCtx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	count, err := endProcesses(endCtx, folder, clk)
	switch {
	case err != nil:
		return err
	case ended && count == 0:
		say("the lab in " + string(folder) + " is down")
	case count > 0:
		say(fmt.Sprintf("the lab in %s is down; %d processes of its dead launcher were ended", folder, count))
	default:
		say("the lab in " + string(folder) + " was down already")
	}
	return nil
}

// endLauncher makes the launcher, if it lives, end the lab and itself, and reports whether it did.
// After a timeout the launcher is killed.
func endLauncher(ctx context.Context, state State, clk clock.WithTicker) (bool, error) {
	launcher, ok := state.Processes[launcherName]
	if !ok || launcher.State().Gone() {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, launcherTimeout+endTimeout)
	defer cancel()
	_, err := supervise.End(ctx, clk, launcherTimeout, func() ([]supervise.ID, error) {
		if launcher.State().Gone() {
			return nil, nil
		}
		return []supervise.ID{launcher}, nil
	})
	if err != nil {
		return false, fmt.Errorf("ending the launcher: %w", err)
	}
	return true, nil
}

// endProcesses ends the remaining processes of a lab, returns their number, and records that none
// lives.
func endProcesses(ctx context.Context, folder Folder, clk clock.WithTicker) (int, error) {
	state, err := folder.ReadState()
	if err != nil {
		return 0, fmt.Errorf("reading the processes to end: %w", err)
	}
	count, err := supervise.End(ctx, clk, crashTimeout, state.live)
	if err != nil {
		return count, fmt.Errorf("ending the lab: %w", err)
	}
	state.Processes, state.Ready = nil, false
	return count, errors.Join(
		folder.writeJSON(stateFile, state),
		folder.writeJSON(pidsFile, map[string]int{}),
		folder.writeJSON(endpointsFile, map[string]string{}),
	)
}
