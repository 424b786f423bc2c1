package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation/field"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/observe"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/plan"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/plan/manifest"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/text"
)

// mostOfFile is how many bytes a file may have: etcd stores no larger object.
const mostOfFile = 4 << 20

// planTimes are durations that the user knows.
type planTimes struct{ join, deletion, drain, update time.Duration }

// declare adds the flags.
func (t *planTimes) declare(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&t.join, "create-time", 0, "how long a machine takes from its creation until its Node is healthy, instead of "+
		"what replicas have measured")
	cmd.Flags().DurationVar(&t.deletion, "delete-time", 0, "how long the deletion of a machine takes, with its drain")
	cmd.Flags().DurationVar(&t.drain, "drain-time", 0, "how long the drain of a Node takes before it is updated")
	cmd.Flags().DurationVar(&t.update, "update-time", 0, "how long an update of a Node takes after its drain; no replica measures it")
}

// over returns durations with those that the user knows.
func (t *planTimes) over(d plan.Durations) plan.Durations {
	var given []string
	for _, flag := range []struct {
		name  string
		value time.Duration
		of    *plan.Distribution
	}{
		{"--create-time", t.join, &d.Run},
		{"--delete-time", t.deletion, &d.Delete},
		{"--drain-time", t.drain, &d.Drain},
		{"--update-time", t.update, &d.Update},
	} {
		if flag.value > 0 {
			*flag.of = plan.Exactly(flag.value)
			given = append(given, flag.name)
		}
	}
	if t.join > 0 {
		d.Create = nil // it is a part of it
	}
	if len(given) > 0 {
		d.Source = strings.TrimPrefix(d.Source+"; "+strings.Join(given, ", "), "; ")
	}
	return d
}

func newPlanCommand(p *program) *cobra.Command {
	var file string
	var exitCode bool
	var from replicaSource
	var times planTimes
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Show what a change would do to machines and Nodes before it is applied",
		Long: help(`
Show what a change of a MachineDeployment, MachineClass, MachineConfig or KubeletConfig would do before it is applied: which fields differ
and what each of them does, which machines are replaced and which Nodes reboot, in which order and why, how many exist at once and in which
zones, which PodDisruptionBudgets block drains, what holds it, and how long it takes. Nothing is written. The file has one object as
kubectl apply would get it.

The plan is a simulation of the fleet's own decisions on the present objects. Times are those that replicas have measured since their
start, read as by kubectl mcf top, or those of flags; without both there is an order and no time.

The exit code is 0 when there is a plan, 1 when there is none, and 2 after wrong usage. With --exit-code that of a plan is 0 if the file
changes nothing, 3 if it has a change that ends, and 4 if it has one that does not end.`,
			rightToRead,
			"list machineclasses of "+v1alpha1.GroupName+" (role view)",
			"get namespaces, "+rightToReadLeases+": holds of deletions",
			"list nodes, pods and poddisruptionbudgets.policy of the target cluster: zones, and drains that are blocked",
			"list machineconfigpools, machineconfigs and kubeletconfigs, get renderedmachineconfigs and controllerconfigs of "+
				fleetv1alpha1.GroupName+" of the target cluster: for a MachineConfig or KubeletConfig",
			rightsForReplicas+": times",
			"what cannot be read is left out, but for MachineDeployments, MachineSets and Machines"),
		Example: "  kubectl mcf plan -f workers.yaml\n" +
			"  kubectl get mcd workers -o yaml | sed s/m5.large/m6.large/ | kubectl mcf plan -f - --create-time 3m --delete-time 2m",
		Args: cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usage("expected a file with the changed object: -f FILE, or -f - for standard input")
			}
			m, err := p.manifest(file)
			if err != nil {
				return err
			}
			v, err := p.planOf(cmd, m, from, &times)
			if err == nil {
				err = p.print(v, []view.Object{v.Object}, func(style text.Style) string { return text.Plan(v, style) })
			}
			if err != nil || !exitCode {
				return err
			}
			return resultOf(v)
		}),
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "file with the changed object, as YAML or JSON; - is standard input")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 0 if nothing changes, 3 if there is a change that ends, and 4 if "+
		"there is one that does not end; 1 and 2 are errors")
	p.outputFlag(cmd)
	from.declare(cmd)
	times.declare(cmd)
	return cmd
}

// resultOf returns the exit code of a plan as an error; nil for 0.
func resultOf(v plan.Plan) error {
	switch {
	case !v.IsChange():
		return nil
	case !v.Ends:
		return &resultError{exitNoEnd}
	}
	return &resultError{exitChange}
}

// manifest reads the file of a change.
func (p *program) manifest(file string) (manifest.Manifest, error) {
	in := p.streams.In
	if file != "-" {
		opened, err := os.Open(file) //nolint:gosec // the user names it
		if err != nil {
			return manifest.Manifest{}, err
		}
		defer opened.Close() //nolint:errcheck // it is only read
		in = opened
	}
	content, err := io.ReadAll(io.LimitReader(in, mostOfFile+1))
	if err == nil && len(content) > mostOfFile {
		err = fmt.Errorf("expected an object of at most %d MiB, and the file is larger", mostOfFile>>20)
	}
	if err != nil {
		return manifest.Manifest{}, fmt.Errorf("read %s: %w", file, err)
	}
	m, err := manifest.Read(content)
	if err != nil {
		return m, fmt.Errorf("%s: %w", file, err)
	}
	return m, nil
}

// planOf returns the plan of a change.
func (p *program) planOf(cmd *cobra.Command, m manifest.Manifest, from replicaSource, times *planTimes) (plan.Plan, error) {
	namespace, err := p.namespace()
	if err != nil {
		return plan.Plan{}, err
	}
	if m.Namespace != "" && p.flags.Namespace != nil && *p.flags.Namespace != "" && m.Namespace != *p.flags.Namespace {
		return plan.Plan{}, usage("the file has the namespace %s, and --namespace is %s; leave one of them out", m.Namespace, *p.flags.Namespace)
	}
	r, err := p.reader()
	if err != nil {
		return plan.Plan{}, err
	}
	scope := observe.Scope{
		Namespace: cmp.Or(m.Namespace, namespace), Machines: true, Classes: true, Namespaces: true, Leases: true, Nodes: true, Pods: true,
	}
	if m.Kind == manifest.MachineConfig || m.Kind == manifest.KubeletConfig {
		scope.Namespace = "" // pools have Nodes of all namespaces of the target cluster
	}
	s, err := r.Read(cmd.Context(), p.now(), scope)
	if err != nil {
		return plan.Plan{}, err
	}
	in := plan.Input{Snapshot: s, Settings: plan.DefaultSettings()}
	in.Durations = times.over(p.durations(cmd.Context(), &in.Snapshot, from, times))
	switch m.Kind {
	case manifest.MachineDeployment:
		return planDeployment(in, m, cmp.Or(m.Namespace, namespace))
	case manifest.MachineClass:
		return planClass(in, m, cmp.Or(m.Namespace, namespace))
	}
	return p.planConfig(cmd.Context(), in, m) // manifest has refused all others
}

// durations reads what replicas have measured. With all times of flags it reads nothing.
func (p *program) durations(ctx context.Context, s *view.Snapshot, from replicaSource, times *planTimes) plan.Durations {
	if times.join > 0 && times.deletion > 0 {
		return plan.Durations{}
	}
	connection, err := p.replicas(ctx, from)
	if err != nil {
		s.Missing = append(s.Missing, view.Missing{What: "Metrics", Why: err.Error()})
		return plan.Durations{}
	}
	defer connection.close()
	missing := len(s.Missing)
	answers := connection.scrape(ctx, s, living(*s))
	s.Missing = append(s.Missing[:missing:missing], unread(s.Missing[missing:])...)
	if len(answers) == 0 {
		return plan.Durations{}
	}
	var all []string
	for _, answer := range answers {
		all = append(all, answer)
	}
	return plan.ReadDurations(all, "")
}

// unread returns the metrics that could not be read as one: the reason is mostly that of all, such
// as replicas of a lab, which are no pods.
func unread(all []view.Missing) []view.Missing {
	if len(all) == 0 {
		return nil
	}
	var names []string
	for _, m := range all {
		names = append(names, strings.TrimPrefix(m.What, "Metrics of "))
	}
	one := all[0]
	one.What = "Metrics of " + strings.Join(names, ", ")
	if one.Right == "" {
		one.Why += "; where replicas are no pods, a file of --endpoints has to name the address of each"
	}
	return []view.Missing{one}
}

// invalid returns the error of an object that is not valid.
func invalid(m manifest.Manifest, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	var all []error
	for _, err := range errs {
		all = append(all, err)
	}
	return fmt.Errorf("%s %s would not be valid, and the fleet would not act on it; correct the file:\n%w", m.Kind, m.Name,
		errors.Join(all...))
}

// planDeployment returns the plan of a change of a MachineDeployment.
func planDeployment(in plan.Input, m manifest.Manifest, namespace string) (plan.Plan, error) {
	var before *v1alpha1.MachineDeployment
	if i := slices.IndexFunc(in.Snapshot.Deployments, func(d *v1alpha1.MachineDeployment) bool { return d.Name == m.Name }); i >= 0 {
		before = in.Snapshot.Deployments[i]
	}
	after, err := manifest.Apply(m, before)
	if err != nil {
		return plan.Plan{}, err
	}
	after.Namespace = namespace
	if before != nil && before.DeletionTimestamp != nil {
		return plan.Plan{}, fmt.Errorf("machinedeployment %s is being deleted: a change has no effect any more; wait until it is gone", m.Name)
	}
	if err := invalid(m, validation.ValidateMachineDeployment(after)); err != nil {
		return plan.Plan{}, err
	}
	return plan.OfDeployment(in, plan.Change{Before: before, After: after})
}

// planClass returns the plan of a change of a MachineClass.
func planClass(in plan.Input, m manifest.Manifest, namespace string) (plan.Plan, error) {
	for _, missing := range in.Snapshot.Missing {
		if missing.What == view.MissingClasses {
			return plan.Plan{}, fmt.Errorf("MachineClasses cannot be read: %s; it needs the right to %s", missing.Why, missing.Right)
		}
	}
	var before *v1alpha1.MachineClass
	if i := slices.IndexFunc(in.Snapshot.Classes, func(c *v1alpha1.MachineClass) bool { return c.Name == m.Name }); i >= 0 {
		before = in.Snapshot.Classes[i]
	}
	after, err := manifest.Apply(m, before)
	if err != nil {
		return plan.Plan{}, err
	}
	after.Namespace = namespace
	if err := invalid(m, validation.ValidateMachineClass(after)); err != nil {
		return plan.Plan{}, err
	}
	return plan.OfClass(in, plan.ClassChange{Before: before, After: after}), nil
}
