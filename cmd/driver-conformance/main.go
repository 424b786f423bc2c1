package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin"
)

// connectTimeout is how long the driver may take to listen.
const connectTimeout = 10 * time.Second

// options are the flags.
type options struct {
	socket, class, secret, vms, end, run string
	page                                 int
	callTimeout                          time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	var s *subject
	if err == nil {
		s, err = connect(ctx, o)
	}
	if err == nil {
		err = quietTests(o.run)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "driver-conformance:", err)
		os.Exit(2) //nolint:gocritic // the process ends, and the signals with it
	}
	testing.Main(regexp.MatchString, []testing.InternalTest{{Name: "Conformance", F: s.test}}, nil, nil)
}

// parse reads the flags. Errors: flag.ErrHelp, and flags that are missing or wrong.
func parse(args []string, out io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("driver-conformance", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&o.socket, "socket", "", "absolute `path` of the unix socket on which the driver listens")
	flags.StringVar(&o.class, "class", "", "`file` with a MachineClass, YAML; its namespace is replaced")
	flags.StringVar(&o.secret, "secret", "", "`file` with a Secret, YAML: credentials, and userData (default: no credentials)")
	flags.StringVar(&o.vms, "vms", "", "`command` of a shell that prints a line for each VM that exists: PROVIDER-ID UID-OF-ITS-MACHINE")
	flags.StringVar(&o.end, "end", "", "`command` of a shell that ends the VM of $PROVIDER_ID (default: cases that need it are skipped)")
	flags.StringVar(&o.run, "run", "", "`expression` that selects cases by their names, as go test -run (default: all)")
	flags.IntVar(&o.page, "more-than-a-page", 0, "`number` of VMs that the cloud does not return in one page (default: it has no pages)")
	flags.DurationVar(&o.callTimeout, "call-timeout", time.Minute, "how long a call may take")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.socket == "" || o.class == "" || o.vms == "" || flags.NArg() > 0 {
		return o, errors.New("expected --socket, --class and --vms, and no other words; see --help")
	}
	return o, nil
}

// connect reads the files and connects to the driver.
func connect(ctx context.Context, o options) (*subject, error) {
	s := &subject{options: o}
	if err := read(o.class, &s.class); err != nil {
		return nil, err
	}
	if o.secret != "" {
		if err := read(o.secret, &s.secret); err != nil {
			return nil, err
		}
	}
	if s.secret.Data == nil {
		s.secret.Data = map[string][]byte{}
	}
	for key, value := range s.secret.StringData {
		s.secret.Data[key] = []byte(value)
	}
	var err error
	if s.client, err = plugin.Dial(ctx, plugin.Settings{
		Provider: s.class.Provider, Socket: o.socket, Fleet: "driver-conformance",
	}); err != nil {
		return nil, err
	}
	ready, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := s.client.Ready(ready); err != nil {
		return nil, errors.Join(err, s.client.Close())
	}
	return s, nil
}

// read decodes a file.
func read[T corev1.Secret | v1alpha1.MachineClass](name string, into *T) error {
	raw, err := os.ReadFile(name) //nolint:gosec // the user names it
	if err != nil {
		return err
	}
	if err := yaml.UnmarshalStrict(raw, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// quietTests sets the flags of package testing, which knows no others.
func quietTests(run string) error {
	testing.Init()
	if err := flag.CommandLine.Parse(nil); err != nil {
		return err
	}
	const noLimit = "0"
	return errors.Join(flag.Set("test.v", "true"), flag.Set("test.timeout", noLimit), flag.Set("test.run", "^Conformance$/"+run))
}
