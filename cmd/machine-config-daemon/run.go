package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	typedfleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/agent"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/desired"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/disk"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/transaction"
)

const (
	// requestTimeout bounds a request to the API server, and healthTimeout one for the machine's
	// health.
	requestTimeout, healthTimeout = 30 * time.Second, 5 * time.Second
	// lockFile is the name of the lock in the folder of records.
	lockFile = "lock"
)

// run applies the desired configuration.
func run(ctx context.Context, o options, out io.Writer) error {
	machine, err := disk.OpenRoot(o.root)
	if err != nil {
		return fmt.Errorf("--root: %w", err)
	}
	defer machine.Close()
	cfg, err := configure(o, machine)
	if err != nil {
		return err
	}
	if err := transaction.Prepare(machine, o.stateDir); err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	lock, err := machine.Lock(o.stateDir + "/" + lockFile)
	if err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	defer lock.Close()
	switch {
	case o.configFile != "":
		return once(ctx, "--config", o.configFile, cfg, (*agent.Agent).Once, out)
	case o.initialFile != "":
		return once(ctx, "--initial", o.initialFile, cfg, (*agent.Agent).Initial, out)
	}
	return follow(ctx, o, cfg)
}

// configure returns the configuration of the Agent.
func configure(o options, machine disk.FS) (agent.Config, error) {
	cfg := agent.Config{
		FS: machine, StateDir: o.stateDir, UID: os.Geteuid(), GID: os.Getegid(), Provisioned: o.provisioned,
		HookDir: o.hookDir, Runner: agent.Exec{}, Systemd: o.systemd == systemdSystemctl, RebootCommand: o.rebootCommand,
		HealthWithin: o.healthWithin, DriftInterval: o.driftInterval, RepairsDrift: o.drift == driftRepair, Log: klog.Background(),
		Reserved: []string{"/proc", "/sys", "/dev"},
		BootID: func() (string, error) {
			content, err := os.ReadFile(o.bootIDFile)
			id := strings.TrimSpace(string(content))
			if err == nil && id == "" {
				err = fmt.Errorf("%s is empty; expected an ID of the boot", o.bootIDFile)
			}
			return id, err //nolint:wrapcheck // it names the file
		},
	}
	if o.healthURL != "" {
		cfg.Unhealthy = healthAt(o.healthURL)
	}
	if o.hookDir != "" {
		entries, err := os.ReadDir(o.hookDir)
		if err != nil {
			return cfg, fmt.Errorf("--hook-dir: %w", err)
		}
		for _, entry := range entries {
			if !entry.IsDir() {
				cfg.Hooks = append(cfg.Hooks, entry.Name())
			}
		}
		slices.Sort(cfg.Hooks)
	}
	return cfg, nil
}

// healthAt returns a function that returns why a URL does not answer 200, and "" when it does.
func healthAt(url string) func(context.Context) string {
	client := &http.Client{Timeout: healthTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	return func(ctx context.Context) string {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err.Error()
		}
		response, err := client.Do(request)
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Sprintf("%s: expected status 200, got %d", url, response.StatusCode)
		}
		return ""
	}
}

// once applies the configuration of a file, which a flag names, with a method of the Agent.
func once(
	ctx context.Context, flag, name string, cfg agent.Config, apply func(*agent.Agent, context.Context) (lifecycle.Report, error),
	out io.Writer,
) error {
	file, err := os.Open(name) //nolint:gosec // a flag names it
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, desired.MaxConfig+1))
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	config, err := desired.Parse(content)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	a, err := agent.New(cfg, agent.File{Config: config})
	if err != nil {
		return err //nolint:wrapcheck // it says what was done
	}
	report, err := apply(a, ctx)
	if err != nil {
		return err
	}
	current := report.Current
	if current == "" || flag == "--config" {
		current = config.Name
	}
	fmt.Fprintf(out, "%s: %s\n", current, report.State)
	return nil
}

// follow applies what is desired for the Node, until ctx ends.
func follow(ctx context.Context, o options, cfg agent.Config) error {
	rest, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	rest = apianswers.Check(rest)
	requests := *rest
	requests.Timeout = requestTimeout
	nodes, err := metadata.NewForConfig(rest)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	configs, err := typedfleetv1alpha1.NewForConfig(&requests)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	cluster := agent.NewCluster(nodes.Resource(agent.Nodes()), configs.RenderedMachineConfigs(), o.node, v1alpha1.AnnotationPrefix(o.prefix))
	a, err := agent.New(cfg, cluster)
	if err != nil {
		return err //nolint:wrapcheck // it says what was done
	}
	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { cluster.Run(ctx) })
	err = a.Run(ctx, cluster.Changed())
	stop()
	watching.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err //nolint:wrapcheck // it says what was done
}
