// Command lab starts and ends a lab: a Kubernetes control plane (or two), a simulated cloud and a fleet, as local
// processes. See docs/lab.md.
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
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/lab/launcher"
	"github.com/machine-controller-fleet/machine-controller-fleet/lab/vm"
)

const usage = `usage: lab <command> [flags]

  up       start a lab in --dir, and return when it is ready
  down     end everything that belongs to it
  status   show what lives and what answers
  start, stop, kill, pause, resume, restart NAME
           do so with one process; the names are those of lab status

lab <command> -h tells the flags.
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
	var options launcher.Options
	flags := flag.NewFlagSet("lab "+command, flag.ContinueOnError)
	flags.StringVar(&options.Dir, "dir", ".lab", "`folder` of the lab")
	switch command {
	case "up":
		options.Bind(flags)
		return parsed(flags, args, &options, 0, func() error { return up(ctx, options, out) })
	case "down":
		return parsed(flags, args, &options, 0, func() error {
			return launcher.Down(ctx, launcher.Folder(options.Dir), clock.RealClock{}, sayTo(out))
		})
	case "status":
		return parsed(flags, args, &options, 0, func() error { return launcher.Status(ctx, launcher.Folder(options.Dir), out) })
	case "start", "stop", "kill", "pause", "resume", "restart":
		return parsed(flags, args, &options, 1, func() error { return act(ctx, options, flags.Arg(0), command, out) })
	case "serve": // started by up
		return parsed(flags, args, &options, 0, func() error { return serve(ctx, options) })
	case vm.Command, vm.InitCommand: // started by cloudsim, and by itself
		return vm.Main(ctx, command, args, out)
	case "help", "-h", "--help":
		fmt.Fprint(out, usage)
		return nil
	}
	return fmt.Errorf("unknown command %q (lab help lists those that there are)", command)
}

// parsed parses flags, wants so many arguments beside them, and goes on. Flags may stand behind an argument.
func parsed(flags *flag.FlagSet, args []string, options *launcher.Options, arguments int, then func() error) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > arguments && arguments > 0 {
		name := flags.Arg(0)
		if err := flags.Parse(append(flags.Args()[1:], name)); err != nil {
			return err
		}
	}
	if flags.NArg() != arguments {
		return fmt.Errorf("%s takes %d arguments, not %q", flags.Name(), arguments, flags.Args())
	}
	if err := options.Complete(); err != nil {
		return err
	}
	return then()
}

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

func act(ctx context.Context, options launcher.Options, name, action string, out io.Writer) error {
	p, err := launcher.NewClient(launcher.Folder(options.Dir)).Act(ctx, name, action)
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
	fmt.Fprintln(out, text)
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
