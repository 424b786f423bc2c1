package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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
	var files planFiles
	var exitCode bool
	var from replicaSource
	var times planTimes
	cmd := &cobra.Command{
		Use:   "plan -f FILE ...",
		Short: "Show what a change would do to machines and Nodes before it is applied",
		Long: help(`
Show what a change of a MachineDeployment, MachineClass, MachineConfig or KubeletConfig would do before it is applied: which fields differ
and what each of them does, which machines are replaced and which Nodes reboot, in which order and why, how many exist at once and in which
zones, which PodDisruptionBudgets block drains, what holds it, and how long it takes. Nothing is written. Files and folders are those of
kubectl apply; several objects are planned as applied at the same moment, and other kinds in them are named and not planned.

The plan is a simulation of the fleet's own decisions on the present objects. Times are those that replicas have measured since their
start, read as by kubectl mcf top, or those of flags; without both there is an order and no time.

The exit code is 0 when there is a plan, 1 when there is none, and 2 after wrong usage. With --exit-code that of a plan is 0 if the file
changes nothing, 3 if it has changes that all end, and 4 if one does not end.`,
			rightToRead,
			"list machineclasses of "+v1alpha1.GroupName+" (role view)",
			"get namespaces, "+rightToReadLeases+": holds of deletions",
			"list nodes, pods and poddisruptionbudgets.policy of the target cluster: zones, and drains that are blocked",
			"list machineconfigpools, machineconfigs and kubeletconfigs, get renderedmachineconfigs and controllerconfigs of "+
				fleetv1alpha1.GroupName+" of the target cluster: for a MachineConfig or KubeletConfig",
			rightsForReplicas+": times",
			"what cannot be read is left out, but for MachineDeployments, MachineSets and Machines"),
		Example: "  kubectl mcf plan -f workers.yaml\n  kubectl mcf plan -f pools/ -f classes.yaml\n" +
			"  kubectl get mcd workers -o yaml | sed s/m5.large/m6.large/ | kubectl mcf plan -f - --create-time 3m --delete-time 2m",
		Args: cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			objects, others, err := files.objects(p.streams.In)
			if err != nil {
				return err
			}
			w, err := p.planOf(cmd, objects, from, &times)
			if err != nil {
				return err
			}
			if len(others) > 0 {
				w.Notes = append(w.Notes, "there are no plans for "+strings.Join(others, ", "))
			}
			v, names := any(w), []view.Object{}
			if len(w.Plans) == 1 && len(w.Notes) == 0 {
				v = w.Plans[0]
			}
			for _, of := range w.Plans {
				names = append(append(names, of.Object), of.With...)
			}
			err = p.print(v, names, func(style text.Style) string { return text.Plans(w, style) })
			if err != nil || !exitCode {
				return err
			}
			return resultOf(w)
		}),
	}
	files.declare(cmd)
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 0 if nothing changes, 3 if there is a change that ends, and 4 if "+
		"there is one that does not end; 1 and 2 are errors")
	p.outputFlag(cmd)
	from.declare(cmd)
	times.declare(cmd)
	return cmd
}

// resultOf returns the exit code of plans as an error; nil for 0.
func resultOf(w plan.Whole) error {
	switch isChange, ends := w.Result(); {
	case !isChange:
		return nil
	case !ends:
		return &resultError{exitNoEnd}
	}
	return &resultError{exitChange}
}

// planOf returns the plans of changes that are applied at the same moment: by namespace, and then
// those of configurations.
func (p *program) planOf(cmd *cobra.Command, objects []manifest.Manifest, from replicaSource, times *planTimes) (w plan.Whole, err error) {
	byNamespace, configs, err := p.sorted(objects)
	if err != nil {
		return w, err
	}
	r, err := p.reader()
	if err != nil {
		return w, err
	}
	measured := p.measuring(from, times)
	read := func(namespace string) (in plan.Input, err error) {
		in.Settings = plan.DefaultSettings()
		in.Snapshot, err = r.Read(cmd.Context(), p.now(), observe.Scope{
			Namespace: namespace, Machines: true, Classes: true, Namespaces: true, Leases: true, Nodes: true, Pods: true,
		})
		if err == nil {
			in.Durations = measured(cmd.Context(), &in.Snapshot)
		}
		return in, err
	}
	var plans []plan.Plan
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		in, err := read(namespace)
		if err != nil {
			return w, err
		}
		changes, err := changesIn(in.Snapshot, byNamespace[namespace], namespace)
		if err != nil {
			return w, err
		}
		of, err := plan.Of(in, changes)
		if err != nil {
			return w, err
		}
		plans = append(plans, of...)
	}
	if len(configs) > 0 {
		in, err := read("") // pools have Nodes of all namespaces of the target cluster
		if err != nil {
			return w, err
		}
		of, err := p.planConfigs(cmd.Context(), in, configs)
		if err != nil {
			return w, err
		}
		plans = append(plans, of)
	}
	w = plan.Together(plans)
	for _, name := range slices.Sorted(maps.Keys(rolledTwice(plans))) {
		w.Notes = append(w.Notes, fmt.Sprintf("MachineDeployment %s is changed, and its machines get a configuration, too: these are planned "+
			"apart, and one rollout does both", name))
	}
	return w, nil
}

// sorted returns objects of namespaces, by these, and configurations, which have none. Errors: an
// object is there twice, or --namespace is another one.
func (p *program) sorted(objects []manifest.Manifest) (byNamespace map[string][]manifest.Manifest, configs []manifest.Manifest, err error) {
	byNamespace = map[string][]manifest.Manifest{}
	namespace, err := p.namespace()
	if err != nil {
		return nil, nil, err
	}
	given := ""
	if p.flags.Namespace != nil {
		given = *p.flags.Namespace
	}
	known := map[string]bool{}
	for _, m := range objects {
		isConfig := m.Kind == manifest.MachineConfig || m.Kind == manifest.KubeletConfig
		switch {
		case isConfig:
			m.Namespace = ""
			configs = append(configs, m)
		case m.Namespace != "" && given != "" && m.Namespace != given:
			return nil, nil, usage("%s in the file has the namespace %s, and --namespace is %s; leave one of them out", m.Name, m.Namespace, given)
		default:
			m.Namespace = cmp.Or(m.Namespace, namespace)
			byNamespace[m.Namespace] = append(byNamespace[m.Namespace], m)
		}
		if known[m.String()] {
			return nil, nil, fmt.Errorf("expected each object once, and %s is in the files twice; remove one of them", m)
		}
		known[m.String()] = true
	}
	return byNamespace, configs, nil
}

// rolledTwice returns the MachineDeployments that have a plan, and get a configuration by another
// one.
func rolledTwice(plans []plan.Plan) map[string]bool {
	changed, both := map[string]bool{}, map[string]bool{}
	for _, of := range plans {
		if of.Kind == view.KindDeployment && of.IsChange() {
			changed[of.Namespace+"/"+of.Name] = true
		}
	}
	for _, of := range plans {
		for _, pool := range of.Pools {
			if changed[pool.By] {
				both[pool.By] = true
			}
		}
	}
	return both
}

// measuring returns what adds durations to a snapshot: they are read once.
func (p *program) measuring(from replicaSource, times *planTimes) func(context.Context, *view.Snapshot) plan.Durations {
	var durations plan.Durations
	var missing []view.Missing
	isRead := false
	return func(ctx context.Context, s *view.Snapshot) plan.Durations {
		if !isRead {
			before := len(s.Missing)
			durations = times.over(p.durations(ctx, s, from, times))
			missing, isRead = slices.Clone(s.Missing[before:]), true
			return durations
		}
		s.Missing = append(s.Missing, missing...)
		return durations
	}
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

// changesIn returns the changes of the objects of a namespace.
func changesIn(s view.Snapshot, objects []manifest.Manifest, namespace string) (all plan.Changes, err error) {
	for _, m := range objects {
		if m.Kind == manifest.MachineClass {
			c, err := classChange(s, m, namespace)
			if err != nil {
				return all, err
			}
			all.Classes = append(all.Classes, c)
			continue
		}
		c, err := deploymentChange(s, m, namespace)
		if err != nil {
			return all, err
		}
		all.Deployments = append(all.Deployments, c)
	}
	return all, nil
}

func deploymentChange(s view.Snapshot, m manifest.Manifest, namespace string) (c plan.Change, err error) {
	if c.Before, c.After, err = changed(m, s.Deployments); err != nil {
		return c, err
	}
	c.After.Namespace = namespace
	if c.Before != nil && c.Before.DeletionTimestamp != nil {
		return c, fmt.Errorf("machinedeployment %s is being deleted: a change has no effect any more; wait until it is gone", m.Name)
	}
	return c, invalid(m, validation.ValidateMachineDeployment(c.After))
}

func classChange(s view.Snapshot, m manifest.Manifest, namespace string) (c plan.ClassChange, err error) {
	for _, missing := range s.Missing {
		if missing.What == view.MissingClasses {
			return c, fmt.Errorf("MachineClasses cannot be read: %s; it needs the right to %s", missing.Why, missing.Right)
		}
	}
	if c.Before, c.After, err = changed(m, s.Classes); err != nil {
		return c, err
	}
	c.After.Namespace = namespace
	return c, invalid(m, validation.ValidateMachineClass(c.After))
}

// named is a pointer to an object of the API.
type named[T any] interface {
	*T
	GetName() string
}

// changed returns the object of a manifest before and after the change.
func changed[T any, P named[T]](m manifest.Manifest, all []P) (before, after P, err error) {
	if i := slices.IndexFunc(all, func(o P) bool { return o.GetName() == m.Name }); i >= 0 {
		before = all[i]
	}
	after, err = manifest.Apply(m, (*T)(before))
	return before, after, err
}
