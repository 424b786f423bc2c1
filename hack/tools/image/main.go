package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage: image <command> [flags]

  build                  build the image into a folder
  push REGISTRY/NAME:TAG push what was built there

image <command> -h lists the flags.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "image:", err)
		}
		os.Exit(1)
	}
}

// run runs one command, and writes its result to out.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("expected build or push, got no command\n%s", usage)
	}
	flags := flag.NewFlagSet("image "+args[0], flag.ContinueOnError)
	dir := flags.String("dir", "bin/image", "`folder` of the image")
	switch args[0] {
	case "build":
		b := build{dir: dir}
		flags.StringVar(&b.source, "source", ".", "`folder` of the repository")
		flags.StringVar(&b.program, "program", "cmd/"+fleet, "`folder` of the program, below that of the repository")
		flags.StringVar(&b.name, "name", "machine-controller-fleet:dev", "`name and tag` of the image")
		flags.StringVar(&b.platforms, "platforms", "linux/amd64,linux/arm64", "operating systems and architectures, split at commas")
		flags.StringVar(&b.release.version, "version", "", "semantic version, such as v0.1.0; empty when unknown")
		flags.StringVar(&b.release.commit, "commit", "", "`hash` of the commit; empty when unknown")
		flags.StringVar(&b.release.date, "date", "", "`time` of the commit (RFC 3339); empty when unknown")
		if err := parse(flags, args[1:], 0); err != nil {
			return err
		}
		return b.run(ctx, out)
	case "push":
		if err := parse(flags, args[1:], 1); err != nil {
			return err
		}
		return push(ctx, *dir, flags.Arg(0), out)
	default:
		return fmt.Errorf("expected build or push, got %q\n%s", args[0], usage)
	}
}

// parse parses flags, and checks the number of arguments after them.
func parse(flags *flag.FlagSet, args []string, wanted int) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != wanted {
		return fmt.Errorf("expected %d arguments after the flags of %q, got %q", wanted, flags.Name(), flags.Args())
	}
	return nil
}
