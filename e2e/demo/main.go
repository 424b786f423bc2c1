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
	"time"
)

// The exit codes, other than 0.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	// SIGPIPE, too: when no process reads the output any more, the lab has to be stopped.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop() // Not before: a second Ctrl-C must not interrupt the clean-up.
	os.Exit(code)
}

func run(ctx context.Context, args []string, out *os.File, stderr io.Writer) int {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	keep := flags.Bool("keep", false, "keep everything running at the end, and print how to inspect it")
	tracing := flags.Bool("tracing", false, "trace the fleet, and show one machine's life")
	picture := flags.String("picture", "", "file for a picture of the run, as SVG")
	replicas := flags.Int("replicas", 3, "number of replicas of the fleet at the start")
	clusters := flags.Int("clusters", 1, "number of target clusters with a real API server; above 2, or with --light, each has a namespace")
	light := flags.Int("light", 0, "number of target clusters with a light API server")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return exitUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "demo: it takes no arguments, got %q\n", flags.Args())
		return exitUsage
	}
	if *replicas < 1 {
		fmt.Fprintf(stderr, "demo: --replicas must be at least 1, got %d\n", *replicas)
		return exitUsage
	}
	if (*clusters > 2 || *light > 0) && *tracing {
		fmt.Fprintln(stderr, "demo: --tracing is for one target cluster")
		return exitUsage
	}
	tools, err := findTools()
	if err != nil {
		fmt.Fprintln(stderr, "demo:", err)
		return exitFailed
	}
	if tools.lab, err = os.MkdirTemp("", "fleet-demo-"); err != nil {
		fmt.Fprintln(stderr, "demo: create a folder for the lab:", err)
		return exitFailed
	}
	d := &demo{
		dir: tools.lab, replicas: *replicas, keep: *keep, clusters: *clusters, light: *light, tracing: *tracing, drawTo: *picture, tools: tools,
		screen: newScreen(out, os.Getenv), began: time.Now(),
	}
	return d.end(ctx, d.play(ctx))
}
