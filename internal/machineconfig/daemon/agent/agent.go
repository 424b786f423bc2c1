package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/desired"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/disk"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/journal"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/transaction"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
)

const (
	// firstRetry and lastRetry bound the time until a failed step is tried again. It doubles, and up
	// to a quarter of it is random.
	firstRetry, lastRetry = 5 * time.Second, 5 * time.Minute
	// maxFailure bounds the text of an error that is kept.
	maxFailure = 1500
)

// ErrRebootNeeded is the error of a machine that has to be rebooted and has no command for it.
var ErrRebootNeeded = errors.New("a reboot is needed to finish the change, and no command for it is configured; reboot the machine, " +
	"and start the daemon again")

// ErrRebooting is the error of Initial when the machine was requested to reboot, and must start
// nothing more before that.
var ErrRebooting = errors.New("the machine reboots to finish its first configuration")

// ErrNotApplied is wrapped by errors of Once for a configuration that was not applied.
var ErrNotApplied = errors.New("the configuration is not applied")

// Config configures an Agent.
type Config struct {
	// FS is the machine's file system, and StateDir the daemon's folder in it.
	FS       disk.FS
	StateDir string
	// UID and GID are those of this process.
	UID, GID int
	// Reserved are further folders that no configuration may change.
	Reserved []string
	// Provisioned takes fields of the first configuration that the daemon does not apply as they are
	// on the machine.
	Provisioned bool
	// HookDir has programs, and Hooks their names: each applies the field of that name.
	HookDir string
	Hooks   []string
	// Runner runs commands. Systemd reports whether systemctl is one of them.
	Runner  Runner
	Systemd bool
	// RebootCommand reboots the machine. Without it a reboot is an error, ErrRebootNeeded.
	RebootCommand []string
	// BootID returns an ID that differs from boot to boot.
	BootID func() (string, error)
	// Unhealthy returns why the machine does not work after a reboot, and "" when it does; nil is
	// always. HealthWithin is how long it may not work until the change is undone.
	Unhealthy    func(ctx context.Context) string
	HealthWithin time.Duration
	// DriftInterval is how often files are compared with the configuration, and RepairsDrift whether
	// differences are repaired.
	DriftInterval time.Duration
	RepairsDrift  bool
	// Clock is the real one when nil, and NewID draws IDs when nil.
	Clock clock.WithTicker
	NewID func() string
	Log   logr.Logger
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error {
	return required.Fields(
		c, "UID", "GID", "Reserved", "HookDir", "Hooks", "RebootCommand", "Unhealthy", "HealthWithin", "DriftInterval", "Clock", "NewID", "Log",
	)
}

// Source has the desired configuration.
type Source interface {
	// Node returns what is known of the Node.
	Node() Node
	// Fetch returns a configuration.
	Fetch(ctx context.Context, name string) (desired.Config, error)
	// Report writes what the daemon reports, if it differs from what is known of the Node.
	Report(ctx context.Context, r lifecycle.Report) error
	// DrainsNode reports whether requests for drains are answered.
	DrainsNode() bool
}

// Node contains what is known of the Node. The zero value is that of one that was not read.
type Node struct {
	// IsKnown reports whether the Node was read.
	IsKnown                 bool
	Desired, Drain, Drained string
}

// Agent applies configurations to a machine. Create one with New. It is not safe for concurrent
// use.
type Agent struct {
	cfg    Config
	log    logr.Logger
	source Source
	store  *transaction.Store
	// isInitial means that the machine is booting for the first time: only units that run already are
	// restarted.
	isInitial bool

	// What this process knows, and loses.
	isKnown      bool     // the Node was read before the last decision
	target       *planned // of targetName
	targetName   string
	missing      string
	drainSince   time.Time
	drift        []string
	driftChecked time.Time
	openSince    time.Time
	isActedOn    bool
	actFailed    string
	failed       string
	failedStep   lifecycle.Do
	failures     int
	retry        time.Time
	rebootSince  time.Time
	repairs      []time.Time
}

// New reads the machine's records, and undoes a transaction that was interrupted.
func New(cfg Config, source Source) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.NewID == nil {
		cfg.NewID = func() string { return fmt.Sprintf("%016x", rand.Uint64()) } //nolint:gosec // unique, not secret
	}
	store, err := transaction.Open(cfg.FS, cfg.StateDir)
	if err != nil {
		return nil, fmt.Errorf("open the daemon's records: %w", err)
	}
	was := journal.After(store.Manifest(), store.Journal())
	next, err := store.Recover()
	if err != nil {
		return nil, fmt.Errorf("recover from an interrupted change: %w", err)
	}
	a := &Agent{cfg: cfg, log: cfg.Log, source: source, store: store, openSince: cfg.Clock.Now()}
	if was != journal.Rest {
		a.log.Info("Recovered from an interrupted change", "found", string(was), "next", string(next), "config", store.Manifest().Config)
	}
	return a, nil
}

// Once applies the configuration of the source and returns the last report. An error wraps
// ErrNotApplied, or is ErrRebootNeeded.
func (a *Agent) Once(ctx context.Context) (lifecycle.Report, error) {
	for ctx.Err() == nil {
		v, err := a.step(ctx)
		switch {
		case errors.Is(err, ErrRebootNeeded):
			return v.Report, ErrRebootNeeded
		case err != nil:
			return v.Report, fmt.Errorf("%w: %w", ErrNotApplied, err)
		case v.Do == lifecycle.Reboot:
			return v.Report, nil
		case v.Do == lifecycle.Rest && v.After > 0:
			if err := a.sleep(ctx, v.After); err != nil {
				return v.Report, err
			}
		case v.Do == lifecycle.Rest && v.Report.Reason != "":
			return v.Report, fmt.Errorf("%w: %s: %s", ErrNotApplied, v.Report.State, v.Report.Reason)
		case v.Do == lifecycle.Rest:
			return v.Report, nil
		}
	}
	return lifecycle.Report{}, ctx.Err() //nolint:wrapcheck // the caller has ended it
}

// Initial applies the configuration of the source if the machine has none, and does nothing on one
// that has, or is changing to another one: so it can run at each boot, before what is configured
// starts. Health is not checked, because nothing runs yet. An error is that of Once, or
// ErrRebooting.
func (a *Agent) Initial(ctx context.Context) (lifecycle.Report, error) {
	config := a.source.Node().Desired
	manifest, open := a.store.Manifest(), a.store.Journal()
	isBegun := open != nil && open.From.Config == "" && open.To.Config == config
	if manifest.Config != "" && !isBegun {
		return lifecycle.Report{Current: manifest.Config, State: v1alpha1.StateDone}, nil
	}
	a.isInitial, a.cfg.Unhealthy = true, nil
	report, err := a.Once(ctx)
	if err == nil && report.State != v1alpha1.StateDone {
		return report, ErrRebooting
	}
	return report, err
}

func (a *Agent) sleep(ctx context.Context, d time.Duration) error {
	timer := a.cfg.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // the caller has ended it
	case <-timer.C():
		return nil
	}
}

// Run applies what the source desires until ctx ends. A step that has begun is finished. changed
// wakes it.
func (a *Agent) Run(ctx context.Context, changed <-chan struct{}) error {
	for ctx.Err() == nil {
		v, err := a.step(ctx)
		if errors.Is(err, ErrRebootNeeded) {
			return err
		}
		if err == nil && v.Do != lifecycle.Rest && v.Do != lifecycle.Reboot {
			continue
		}
		wait := a.cfg.DriftInterval
		if v.After > 0 {
			wait = min(wait, v.After)
		}
		if err != nil {
			wait = min(wait, a.retry.Sub(a.cfg.Clock.Now()))
		}
		timer := a.cfg.Clock.NewTimer(max(wait, time.Millisecond))
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C():
		}
		timer.Stop()
	}
	return nil
}
