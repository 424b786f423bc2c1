package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/observe"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/text"
)

// program has the flags that all commands share.
type program struct {
	streams genericiooptions.IOStreams
	clock   clock.WithTicker
	env     func(string) string
	// connect returns the configurations of clients of the control cluster and of the target cluster;
	// nil where there is none.
	connect func(p *program) (control, target *rest.Config, err error)

	flags         *genericclioptions.ConfigFlags
	allNamespaces bool
	output        string
	noColor       bool
	// targetKubeconfig and targetContext name the target cluster; without both it is the control
	// cluster.
	targetKubeconfig, targetContext string
	noTarget                        bool
	fleetNamespace, fleetName       string
}

// declare adds the flags of all commands.
func (p *program) declare(cmd *cobra.Command) {
	p.flags = genericclioptions.NewConfigFlags(true)
	set := cmd.PersistentFlags()
	p.flags.AddFlags(set)
	set.StringVar(&p.targetKubeconfig, "target-kubeconfig", "", "kubeconfig of the target cluster, where the Nodes are, if it is another one")
	set.StringVar(&p.targetContext, "target-context", "", "context of the target cluster, in the kubeconfig or in that of --target-kubeconfig")
	set.BoolVar(&p.noTarget, "no-target", false, "read nothing from the target cluster")
	set.StringVar(&p.fleetNamespace, "fleet-namespace", "machine-controller-fleet", "namespace of the fleet's Leases")
	set.StringVar(&p.fleetName, "fleet-name", "fleet", "name of the fleet, with which its Leases begin")
	set.BoolVar(&p.noColor, "no-color", false, "no colors on a terminal, as with the environment variable NO_COLOR")
}

// now returns the time, by the clock of this process.
func (p *program) now() time.Time { return p.clock.Now() }

// namespace returns the namespace of the command; "" with --all-namespaces.
func (p *program) namespace() (string, error) {
	if p.allNamespaces {
		return "", nil
	}
	namespace, _, err := p.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("kubeconfig: %w", err)
	}
	return namespace, nil
}

// kubeconfigs returns the configurations that the flags name.
func kubeconfigs(p *program) (control, target *rest.Config, err error) {
	if control, err = p.control(); err != nil {
		return nil, nil, err
	}
	target, err = p.target()
	return control, target, err
}

func (p *program) control() (*rest.Config, error) {
	config, err := p.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("expected a kubeconfig (--kubeconfig, KUBECONFIG) of the control cluster: %w", err)
	}
	return quick(config), nil
}

// quick returns the configuration without a limit of requests: the API server has its own.
func quick(config *rest.Config) *rest.Config {
	config.QPS = -1
	config.Wrap(decode.PageTransport)
	return apianswers.Check(config)
}

func (p *program) target() (*rest.Config, error) {
	switch {
	case p.noTarget:
		return nil, nil //nolint:nilnil // there is none
	case p.targetKubeconfig == "" && p.targetContext == "":
		return p.control()
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = cmp.Or(p.targetKubeconfig, *p.flags.KubeConfig)
	overrides := &clientcmd.ConfigOverrides{CurrentContext: p.targetContext}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("expected a kubeconfig of the target cluster (--target-kubeconfig, --target-context): %w", err)
	}
	return quick(config), nil
}

// elsewhere says what to do where the target cluster is not that of the kubeconfig.
const elsewhere = "if Nodes are in another cluster, name it by --target-kubeconfig or --target-context"

// machines returns a client of the machine API.
func machines(config *rest.Config) (machineclient.MachineV1alpha1Interface, error) {
	client, err := rest.RESTClientFor(decode.Config(config))
	if err != nil {
		return nil, fmt.Errorf("client of the machine API: %w", err)
	}
	return machineclient.New(client), nil
}

// reader returns the reader of snapshots.
func (p *program) reader() (observe.Reader, error) {
	r := observe.Reader{
		FleetNamespace: p.fleetNamespace, FleetName: p.fleetName, Timeouts: view.DefaultTimeouts(), NoTarget: "--no-target is set",
		IsAssumed: p.targetKubeconfig == "" && p.targetContext == "", Elsewhere: elsewhere,
	}
	control, target, err := p.connect(p)
	if err != nil {
		return r, err
	}
	var err1, err2 error
	r.Machines, err1 = machines(control)
	r.Control, err2 = kubeclient.New(control)
	if err := errors.Join(err1, err2); err != nil || target == nil {
		return r, err
	}
	r.Target, err = kubeclient.New(target)
	return r, err
}

// readerIn returns the reader of snapshots, and the namespace of the command.
func (p *program) readerIn() (r observe.Reader, namespace string, err error) {
	if r, err = p.reader(); err != nil {
		return r, "", err
	}
	namespace, err = p.namespace()
	return r, namespace, err
}

// read reads a snapshot of the command's namespace.
func (p *program) read(cmd *cobra.Command, scope observe.Scope) (s view.Snapshot, err error) {
	r, namespace, err := p.readerIn()
	if err != nil {
		return s, err
	}
	scope.Namespace = namespace
	return r.Read(cmd.Context(), p.now(), scope)
}

// readFleet is read for views that are computed from Leases, so that it is an error if there are
// none.
func (p *program) readFleet(cmd *cobra.Command, scope observe.Scope) (view.Snapshot, error) {
	scope.Leases = true
	s, err := p.read(cmd, scope)
	if err == nil {
		err = needLeases(s)
	}
	return s, err
}

// style returns how text is rendered: within the width of the terminal and with colors if there is
// one.
func (p *program) style() text.Style {
	s := text.Style{Wide: p.output == outputWide, Now: p.now()}
	file, ok := p.streams.Out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return s
	}
	s.Color = !p.noColor && p.env("NO_COLOR") == "" && p.env("TERM") != "dumb"
	if width, _, err := term.GetSize(int(file.Fd())); err == nil && !s.Wide {
		s.Width = width
	}
	return s
}
