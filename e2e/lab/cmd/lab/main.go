// Command lab starts and ends a lab: a Kubernetes control plane (or two), a simulated cloud and a
// fleet, as local processes. See docs/lab.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/launcher"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/light"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/vm"
)

const usage = `usage: lab <command> [flags]

  up       start a lab in --dir, and return when it is ready
  down     end everything that belongs to it
  status   show what lives and what answers
  start, stop, kill, crash, pause, resume, restart NAME
           do so with one process; the names are those of lab status. What is
           killed stays ended until it is started, what crashes comes back

  scale N          have so many replicas
  replace REPLICA  delete its pod; the next one has another UID and an empty folder
  double REPLICA   start a second process in its pod (--new-pod: in a new one)

  links                         show the proxies of the replicas
  cut, refuse, heal NAME [LINK] lose everything, refuse connections, or neither;
                                LINK is control, target or cloud, default all
  delay NAME [LINK] --by=1s     pass on everything later, in each direction
  limit NAME [LINK] --to=64     pass on so many kB/s
  stall NAME [LINK] --above=16  hold back large answers, such as lists, and pass small ones

  rotate [NAME]    give the fleet other credentials for a target cluster of a landscape, or for all

  trace MACHINE    show the traces of a machine that Jaeger has, by owner: NAME or NAMESPACE/NAME

  snapshot FILE    save what etcd holds
  restore FILE     replace the content of etcd by that of FILE

lab <command> -h lists the flags.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "lab:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("a command is missing (lab help lists them)")
	}
	command, args := args[0], args[1:]
	c := &invocation{flags: flag.NewFlagSet("lab "+command, flag.ContinueOnError), out: out}
	c.flags.StringVar(&c.options.Dir, "dir", ".lab", "`folder` of the lab")
	switch command {
	case "up":
		c.options.Bind(c.flags)
		return c.run(args, 0, 0, func() error { return up(ctx, c.options, out) })
	case "down":
		return c.run(args, 0, 0, func() error { return launcher.Down(ctx, c.folder(), clock.RealClock{}, sayTo(out)) })
	case "status":
		return c.run(args, 0, 0, func() error { return launcher.Status(ctx, c.folder(), out) })
	case "start", "stop", "kill", "crash", "pause", "resume", "restart":
		return c.run(args, 1, 1, func() error { return c.act(ctx, command) })
	case "scale":
		return c.run(args, 1, 1, func() error { return c.scale(ctx) })
	case "replace":
		return c.run(args, 1, 1, func() error { return c.replace(ctx) })
	case "double":
		newPod := c.flags.Bool("new-pod", false, "in a new pod, as after a deletion by force")
		return c.run(args, 1, 1, func() error { return c.double(ctx, *newPod) })
	case "links":
		return c.run(args, 0, 0, func() error { return c.links(ctx) })
	case "cut", "refuse", "heal", "delay", "limit", "stall":
		fault := faultFlags(c.flags, command)
		return c.run(args, 1, 2, func() error { return c.fault(ctx, fault()) })
	case "trace":
		epoch := c.flags.Int64("until-epoch", 0, "wait until an owner that holds the machine's slot in this `epoch` or a later one has sent "+
			"spans, which it does each second; at most 2 min")
		return c.run(args, 1, 1, func() error { return c.trace(ctx, *epoch) })
	case "rotate":
		return c.run(args, 0, 1, func() error { return c.client().Rotate(ctx, strings.Join(c.args, "")) })
	case "snapshot":
		return c.run(args, 1, 1, func() error { return c.snapshot(ctx) })
	case "restore":
		bump := c.flags.Uint64("bump-revision", 0,
			"how much to `raise` etcd's revision, as recommended; without it lost revisions are used again")
		away := c.flags.Duration("away", 10*time.Second,
			"for how `long` the API servers are away at least; less than the fence of the fleet, 9 s, is what its limits exclude")
		return c.run(args, 1, 1, func() error { return c.restore(ctx, launcher.Snapshot{BumpRevision: *bump, Away: *away}) })
	case "serve": // started by up
		return c.run(args, 0, 0, func() error { return serve(ctx, c.options) })
	case "light": // started by serve
		return c.run(args, 1, 1, func() error { return serveLight(ctx, c.args[0]) })
	case vm.Command, vm.InitCommand: // started by cloudsim, and by itself
		return vm.Main(ctx, command, args, out)
	case "help", "-h", "--help":
		fmt.Fprint(out, usage)
		return nil
	}
	return fmt.Errorf("unknown command %q (lab help lists all)", command)
}

// invocation is one call of a command.
type invocation struct {
	flags   *flag.FlagSet
	options launcher.Options
	args    []string // without the flags
	out     io.Writer
}

// run parses flags, which may be between arguments, checks that there are least to most of these,
// and calls the command.
func (c *invocation) run(args []string, least, most int, then func() error) error {
	for len(args) > 0 {
		if err := c.flags.Parse(args); err != nil {
			return err
		}
		if args = c.flags.Args(); len(args) > 0 {
			c.args, args = append(c.args, args[0]), args[1:]
		}
	}
	if len(c.args) < least || len(c.args) > most {
		wanted := strconv.Itoa(least)
		if most > least {
			wanted += " to " + strconv.Itoa(most)
		}
		return fmt.Errorf("%s takes %s arguments, not %q", c.flags.Name(), wanted, c.args)
	}
	if err := c.options.Complete(); err != nil {
		return err
	}
	return then()
}

func (c *invocation) folder() launcher.Folder { return launcher.Folder(c.options.Dir) }

func (c *invocation) client() launcher.Client { return launcher.NewClient(c.folder()) }

func sayTo(out io.Writer) func(string) {
	return func(text string) { fmt.Fprintln(out, text) }
}

func up(ctx context.Context, options launcher.Options, out io.Writer) error {
	started := time.Now()
	say := func(text string) { fmt.Fprintf(out, "%6.1fs  %s\n", time.Since(started).Seconds(), text) }
	if err := launcher.Up(ctx, options, clock.RealClock{}, say); err != nil {
		return err
	}
	return launcher.Guide(options, out)
}

func (c *invocation) act(ctx context.Context, action string) error {
	p, err := c.client().Act(ctx, c.args[0], action)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s: %s", p.Name, p.State)
	if p.PID != 0 {
		text += fmt.Sprintf(", process %d", p.PID)
	}
	if p.Exit != "" {
		text += ", " + p.Exit
	}
	fmt.Fprintln(c.out, text)
	return nil
}

func serve(ctx context.Context, options launcher.Options) error {
	ctx, say, ready, end, err := launcher.ReportTo(ctx, launcher.ReportFD)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	err = launcher.Serve(ctx, launcher.Folder(options.Dir), clock.RealClock{}, log, say, ready)
	end(err)
	return err
}

// serveLight serves the light clusters of a file until ctx ends.
func serveLight(ctx context.Context, file string) error {
	all, err := light.ReadSet(file)
	if err != nil {
		return err
	}
	return all.Run(ctx, clock.RealClock{}, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}
