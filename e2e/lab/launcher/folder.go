package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
)

// Folder is the folder of a lab (LAB_DIR). In it:
//
//	admin.kubeconfig, target.kubeconfig   for people and tests, with all rights; the same server if there is one cluster
//	cloudsim.kubeconfig
//	fleet-<n>.control.kubeconfig, fleet-<n>.target.kubeconfig   through the replica's proxies
//	targets.json, targets/<name>.kubeconfig   the target clusters of a landscape, with all rights
//	light.json, clusters/  what serves and what joins them
//	pids.json              one flat object, name → process number, of what lives now
//	endpoints.json         one flat object, name → URL
//	logs/<name>.log        the output of each process
//	audit.log, target-audit.log           of the API servers
//	cloudsim-calls.jsonl   written by cloudsim
//	state.json             what Down needs, in its own format
//	pods/<replica>_<uid>/  a folder for each pod of the fleet
//	values.yaml            what the Helm chart needs here, if the lab has its own Nodes
//	sockets/               of drivers
//	clouds/                the certificates of clouds besides cloudsim
//	images/                programs that are images for real kubelets, called <name>:<tag> or <name>
//	pki/, etcd/, cloudsim/ secrets and data
type Folder string

const (
	adminKubeconfig    = "admin.kubeconfig"
	targetKubeconfig   = "target.kubeconfig"
	cloudsimKubeconfig = "cloudsim.kubeconfig"
	cloudsimCalls      = "cloudsim-calls.jsonl"
	stateFile          = "state.json"
	valuesFile         = "values.yaml"
	pidsFile           = "pids.json"
	endpointsFile      = "endpoints.json"
	membersFile        = "targets.json"
	logsDir            = "logs"
	socketsDir         = "sockets"
	cloudsDir          = "clouds"
	lockFile           = "lock"
)

// remains are the files of a run, which the next one removes. Nothing else in the folder is ever
// removed.
var remains = []string{
	"*.kubeconfig", "pki", "etcd", "etcd.restored", "pods", imagesDir, valuesFile, "cloudsim", "flexvolumes", logsDir, socketsDir, cloudsDir,
	"*audit*.log", cloudsimCalls, pidsFile, endpointsFile, stateFile, membersFile, membersFolder, lightFile, cloudsimFolder,
}

// State is the information for ending and describing a lab.
type State struct {
	// ID is the value of the variable IDVariable in the environment of all processes of this run.
	ID      string  `json:"id"`
	Options Options `json:"options"`
	// Processes that live, by name; the launcher is among them.
	Processes map[string]supervise.ID `json:"processes"`
	// Ready is set once everything has been started and has become ready.
	Ready bool `json:"ready"`
}

// IDVariable is an environment variable that all processes of a lab have in common.
const IDVariable = "LAB_ID"

// launcherName is the launcher's own name among its processes.
const launcherName = "launcher"

func (f Folder) path(name string) string { return filepath.Join(string(f), name) }

// Log is the path of a process's log.
func (f Folder) Log(name string) string { return filepath.Join(string(f), logsDir, name+".log") }

// ReadState reads the state; fs.ErrNotExist when there is no lab.
func (f Folder) ReadState() (State, error) {
	var state State
	err := f.readJSON(stateFile, &state)
	return state, err
}

// clear removes the files of an earlier run, and creates the folder for logs. Error: the folder has
// files of such names, and no run has created them.
func (f Folder) clear() error {
	paths, err := f.remaining()
	if err != nil {
		return err
	}
	if _, err := os.Stat(f.path(stateFile)); absent(err) {
		if at := slices.IndexFunc(paths, func(path string) bool { return !isEmptyFolder(path) }); at >= 0 {
			return fmt.Errorf(
				"want an empty or new folder, or that of an earlier lab, which has a %s: %s is there, which a lab would remove; name another folder",
				stateFile, paths[at],
			)
		}
	}
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("removing the files of an earlier run: %w", err)
		}
	}
	if err := os.MkdirAll(f.path(logsDir), 0o755); err != nil {
		return fmt.Errorf("creating the folder for logs: %w", err)
	}
	return nil
}

// remaining returns the paths of what an earlier run has left, its state last.
func (f Folder) remaining() (all []string, err error) {
	for _, pattern := range remains {
		paths, err := filepath.Glob(filepath.Join(globQuote(string(f)), pattern))
		if err != nil {
			return nil, fmt.Errorf("looking for %s of an earlier run: %w", pattern, err)
		}
		all = append(all, paths...)
	}
	return all, nil
}

// isEmptyFolder reports whether a path is a folder with nothing in it.
func isEmptyFolder(path string) bool {
	entries, err := os.ReadDir(path)
	return err == nil && len(entries) == 0
}

// globQuote makes a path match only itself.
func globQuote(path string) string {
	var quoted []rune
	for _, r := range path {
		switch r {
		case '*', '?', '[', '\\':
			quoted = append(quoted, '\\')
		}
		quoted = append(quoted, r)
	}
	return string(quoted)
}

func (f Folder) readJSON(name string, into any) error {
	data, err := os.ReadFile(f.path(name))
	if err != nil {
		return err // It names the path.
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", f.path(name), err)
	}
	return nil
}

// writeJSON replaces a file in one step, so that a reader sees the old or the new one.
func (f Folder) writeJSON(name string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	return f.writeFile(name, append(data, '\n'))
}

func (f Folder) writeFile(name string, data []byte) error {
	path := f.path(name)
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// lock excludes other commands that start or end this lab, until the returned function is called or
// the process ends. It waits for the lock.
func (f Folder) lock(ctx context.Context, clk clock.WithTicker, say func(string)) (unlock func(), err error) {
	file, err := os.OpenFile(f.path(lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lab's lock: %w", err)
	}
	unlock = func() { _ = file.Close() }
	ticker := clk.NewTicker(lockInterval)
	defer ticker.Stop()
	for waited := false; ; waited = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return unlock, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			unlock()
			return nil, fmt.Errorf("taking the lab's lock: %w", err)
		}
		if !waited {
			say("another lab command is running in " + string(f) + ", waiting for it")
		}
		select {
		case <-ctx.Done():
			unlock()
			return nil, fmt.Errorf("waiting for another lab command in %s: %w", f, ctx.Err())
		case <-ticker.C():
		}
	}
}

const lockInterval = 50 * time.Millisecond

// absent reports whether an error means that there is no lab.
func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }
