package main

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/launcher"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/proxy"
)

func (c *invocation) scale(ctx context.Context) error {
	replicas, err := strconv.Atoi(c.args[0])
	if err != nil {
		return fmt.Errorf("scale: expected a number of replicas, got %q", c.args[0])
	}
	return c.printPods(c.client().Scale(ctx, replicas))
}

func (c *invocation) replace(ctx context.Context) error {
	return c.printPods(c.client().Replace(ctx, c.args[0]))
}

func (c *invocation) double(ctx context.Context, newPod bool) error {
	return c.printPods(c.client().Double(ctx, c.args[0], newPod))
}

func (c *invocation) printPods(pods []launcher.Pod, err error) error {
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tREPLICA\tPOD\tADDRESS")
	for _, pod := range pods {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", pod.Name, pod.Replica, pod.UID, pod.URL)
	}
	return table.Flush()
}

func (c *invocation) links(ctx context.Context) error {
	links, err := c.client().Links(ctx)
	if err != nil {
		return err
	}
	return c.printLinks(links)
}

func (c *invocation) printLinks(links []launcher.Link) error {
	table := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PROCESS\tLINK\tADDRESS\tLEADS TO\tREQUESTS\tANSWERS\tFAULT")
	for _, l := range links {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d kB\t%d kB\t%s\n",
			l.Process, l.Link, l.Listen, l.Upstream, l.RequestBytes/1000, l.AnswerBytes/1000, l.Fault)
	}
	return table.Flush()
}

// faultFlags binds the flags of a command that sets a fault, and returns a function that sets the
// fault of them.
func faultFlags(flags *flag.FlagSet, command string) func() proxy.Fault {
	fault := proxy.Fault{Kind: proxy.Kind(command)}
	if command == "heal" {
		fault.Kind = proxy.None
	}
	only, by, hold := "", time.Duration(0), time.Duration(0)
	switch command {
	case "cut", "delay", "limit":
		flags.StringVar(&only, "only", "", "the `direction`: requests or answers (default both)")
	}
	switch command {
	case "delay":
		flags.DurationVar(&by, "by", time.Second, "`how long`")
	case "limit":
		flags.Int64Var(&fault.KBPerSecond, "to", 64, "thousand `bytes` in a second")
	case "stall":
		flags.Int64Var(&fault.AboveKB, "above", 16, "thousand `bytes` that a server may send on a connection within about 100 ms")
		flags.DurationVar(&hold, "hold", 0, "`how long` a connection stays open that has stopped (default: until its client closes it)")
	}
	return func() proxy.Fault {
		fault.Only, fault.DelayMillis = proxy.Direction(only), by.Milliseconds()
		fault.HoldMillis = hold.Milliseconds()
		return fault
	}
}

// fault sets a fault on the links of a process, all or one.
func (c *invocation) fault(ctx context.Context, fault proxy.Fault) error {
	links, err := c.client().Links(ctx)
	if err != nil {
		return err
	}
	var changed []launcher.Link
	for _, link := range links {
		if link.Process != c.args[0] || len(c.args) > 1 && link.Link != c.args[1] {
			continue
		}
		link, err := c.client().SetFault(ctx, link.Process, link.Link, fault)
		if err != nil {
			return err
		}
		changed = append(changed, link)
	}
	if len(changed) == 0 {
		return fmt.Errorf("there is no link %q (lab links lists them)", c.args)
	}
	return c.printLinks(changed)
}

func (c *invocation) snapshot(ctx context.Context) error {
	file, err := filepath.Abs(c.args[0])
	if err != nil {
		return fmt.Errorf("the path of the snapshot: %w", err)
	}
	if err := c.client().Save(ctx, launcher.Snapshot{File: file}); err != nil {
		return err
	}
	fmt.Fprintln(c.out, "saved etcd to", file)
	return nil
}

func (c *invocation) restore(ctx context.Context, s launcher.Snapshot) (err error) {
	if s.File, err = filepath.Abs(c.args[0]); err != nil {
		return fmt.Errorf("the path of the snapshot: %w", err)
	}
	if err := c.client().Restore(ctx, s); err != nil {
		return err
	}
	fmt.Fprintln(c.out, "restored etcd from", s.File, "and the control plane is ready")
	return nil
}
