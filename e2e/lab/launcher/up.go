package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/google/uuid"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
)

// Up starts a lab, unless it runs already, and returns when it is ready. When it fails, or when ctx
// ends before that, nothing is left running.
func Up(ctx context.Context, options Options, clk clock.WithTicker, say func(string)) error {
	folder := options.folder()
	if err := os.MkdirAll(options.Dir, 0o755); err != nil {
		return fmt.Errorf("creating the lab's folder: %w", err)
	}
	unlock, err := folder.lock(ctx, clk, say)
	if err != nil {
		return err
	}
	defer unlock()
	running, err := alreadyUp(ctx, options)
	if err != nil {
		return err
	}
	if running {
		say("the lab in " + options.Dir + " is up already")
		return nil
	}
	if err := options.Validate(); err != nil {
		return err
	}
	if err := folder.clear(); err != nil {
		return err
	}
	state := State{ID: uuid.NewString(), Options: options}
	if err := folder.writeJSON(stateFile, state); err != nil {
		return err
	}
	if err := startLauncher(ctx, folder, state.ID, say); err != nil {
		// The launcher has ended everything, unless it has failed itself.
		endCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_, endErr := endProcesses(endCtx, folder, clk)
		return errors.Join(err, endErr)
	}
	return nil
}

// startLauncher starts a launcher, and returns when it is ready, or when it has ended.
func startLauncher(ctx context.Context, folder Folder, id string, say func(string)) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program, which is the launcher too: %w", err)
	}
	logPath := folder.Log(launcherName)
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the launcher's log: %w", err)
	}
	defer log.Close()
	ours, theirs, err := connection()
	if err != nil {
		return err
	}
	defer ours.Close()
	cmd := exec.Command(self, "serve", "--dir="+string(folder)) //nolint:noctx // It outlives us.
	cmd.Env = append(os.Environ(), IDVariable+"="+id)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{theirs} // becomes ReportFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = theirs.Close()
	if err != nil {
		return fmt.Errorf("starting the launcher: %w", err)
	}
	// Closing the connection makes the launcher cancel the boot.
	stop := context.AfterFunc(ctx, func() { _ = ours.Close() })
	defer stop()
	err = follow(ours, say)
	if err == nil {
		return nil
	}
	_ = ours.Close()
	_ = cmd.Wait() // How it ends is in its log.
	if ctx.Err() != nil {
		return fmt.Errorf("given up: %w", ctx.Err())
	}
	if errors.Is(err, errVanished) {
		return &culprit{name: launcherName, log: logPath, err: err}
	}
	return err
}

// alreadyUp reports whether a lab like this runs in the folder. It is an error if another one runs,
// or only a part of one.
func alreadyUp(ctx context.Context, options Options) (bool, error) {
	folder := options.folder()
	state, err := folder.ReadState()
	if absent(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("the processes of the folder are unknown (remove %s if none runs): %w", folder.path(stateFile), err)
	}
	live, err := state.live()
	if err != nil || len(live) == 0 {
		return false, err
	}
	const advice = "; end it with lab down --dir="
	if launcher, ok := state.Processes[launcherName]; !ok || launcher.State().Gone() || !state.Ready {
		return false, fmt.Errorf("a part of a lab runs in %s: %d processes, without a working launcher%s%s",
			options.Dir, len(live), advice, options.Dir)
	}
	if wanted, actual := options.String(), state.Options.String(); wanted != actual {
		return false, fmt.Errorf("the lab in %s runs with other options (lab scale changes its replicas): expected %s, got %s%s%s",
			options.Dir, wanted, actual, advice, options.Dir)
	}
	list, err := NewClient(folder).Processes(ctx)
	if err != nil {
		return false, fmt.Errorf("a lab runs in %s, but its launcher does not answer%s%s: %w", options.Dir, advice, options.Dir, err)
	}
	var down []string
	for _, p := range list {
		if p.State != supervise.Running {
			down = append(down, p.Name+" ("+string(p.State)+")")
		}
	}
	if len(down) > 0 {
		return false, fmt.Errorf("a lab runs in %s, but not all of it: %s; start them with lab start, or%s%s",
			options.Dir, strings.Join(down, ", "), advice[1:], options.Dir)
	}
	return true, nil
}

// live returns the processes of a lab, regardless of their parent.
func (s State) live() ([]supervise.ID, error) {
	live, err := supervise.WithEnv(IDVariable, s.ID)
	if err != nil {
		return nil, err
	}
	known := map[supervise.ID]bool{}
	for _, id := range live {
		known[id] = true
	}
	for _, id := range s.Processes {
		if !known[id] && !id.State().Gone() {
			live = append(live, id)
		}
	}
	return live, nil
}
