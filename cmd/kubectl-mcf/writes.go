package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/observe"
	"github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// patchDefaults returns the options of a patch.
func patchDefaults() metav1.PatchOptions { return metav1.PatchOptions{FieldManager: fieldManager} }

// annotation returns a merge patch that sets an annotation, or removes it for "".
func annotation(key, value string) []byte {
	set := []byte("null")
	if value != "" {
		set, _ = json.Marshal(value) // a text can be encoded
	}
	return fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, key, set)
}

const (
	rightToEditMachines = "get and patch machines of " + v1alpha1.GroupName + " (role edit)"
	rightToEditNodes    = "patch nodes of the target cluster, if the annotation of the Node decides"
	rightToEditStatus   = "patch machines/status (role …:operator of the chart), with --for"
	// beginsWithin is how long the fleet may take to begin a preservation.
	beginsWithin = 30 * time.Second
)

// machine reads a machine.
func (p *program) machine(ctx context.Context, arg string) (observe.Reader, *v1alpha1.Machine, error) {
	r, namespace, err := p.readerIn()
	if err != nil {
		return r, nil, err
	}
	name, err := machineName(arg)
	if err != nil {
		return r, nil, err
	}
	m, err := r.Machines.Machines(namespace).Get(ctx, name, metav1.GetOptions{})
	return r, m, observe.Explain(err, observe.Right{Verb: "get", Resource: "machines." + v1alpha1.GroupName, Namespace: namespace})
}

// annotatePreserve sets the annotation preserve, or removes it for "", on the object that decides:
// the Node, if its annotation was applied last, or else the machine.
func annotatePreserve(ctx context.Context, r observe.Reader, m *v1alpha1.Machine, value string) error {
	patch := annotation(v1alpha1.AnnotationPreserve, value)
	if m.Annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue] == "" {
		_, err := r.Machines.Machines(m.Namespace).Patch(ctx, m.Name, types.MergePatchType, patch, patchDefaults())
		return observe.Explain(err, observe.Right{Verb: "patch", Resource: "machines." + v1alpha1.GroupName, Namespace: m.Namespace})
	}
	node := m.Labels[v1alpha1.LabelNode]
	if r.Target == nil {
		return fmt.Errorf("the annotation of Node %s decides on the preservation of machine %s, and there is no target cluster: %s",
			node, m.Name, r.NoTarget)
	}
	_, err := r.Target.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, patchDefaults())
	if isGone(err) { // the machine's annotation applies then, and replaces the recorded value
		_, err = r.Machines.Machines(m.Namespace).Patch(ctx, m.Name, types.MergePatchType, patch, patchDefaults())
	}
	return observe.Explain(err, observe.Right{Verb: "patch", Resource: "nodes", Cluster: "target"})
}

func newPreserveCommand(p *program) *cobra.Command {
	var period time.Duration
	var whenFailed bool
	cmd := &cobra.Command{
		Use:   "preserve MACHINE",
		Short: "Keep a machine from being replaced, for some time",
		Long: help(`
Preserve a machine: it is not replaced although it fails, and the cluster-autoscaler leaves it alone, until its time is over. That is
the fleet's setting (96 h by default), or --for. A preservation that has begun gets the new end. Deletions by clients, and scale-downs
that leave no other choice, delete it all the same.`,
			rightToEditMachines, rightToEditStatus, rightToEditNodes),
		Example: "  kubectl mcf preserve workers-6f-bcdfg --for 4h\n  kubectl mcf preserve workers-6f-bcdfg --when-failed",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case period < 0:
				return fmt.Errorf("--for: expected a duration of more than 0, got %s", period)
			case whenFailed && period > 0:
				return errors.New("expected --for or --when-failed, got both: the end is known when the preservation begins")
			}
			return ran(p.preserve(cmd.Context(), args[0], period, whenFailed))
		},
	}
	cmd.Flags().DurationVar(&period, "for", 0, "how long from now; the fleet's setting without it")
	cmd.Flags().BoolVar(&whenFailed, "when-failed", false, "begin when the machine fails")
	return cmd
}

func (p *program) preserve(ctx context.Context, arg string, period time.Duration, whenFailed bool) error {
	r, m, err := p.machine(ctx, arg)
	switch {
	case err != nil:
		return err
	case m.DeletionTimestamp != nil:
		return fmt.Errorf("machine %s is being deleted since %s, and cannot be preserved", m.Name, m.DeletionTimestamp.UTC().Format(time.RFC3339))
	case machinefacts.HasFailed(m) && machinefacts.IsPreservationOver(m, p.now()):
		return fmt.Errorf("the preservation of machine %s is over, and it has failed: a failed machine is preserved once", m.Name)
	}
	value := v1alpha1.PreserveNow
	if whenFailed {
		value = v1alpha1.PreserveWhenFailed
	}
	if err := annotatePreserve(ctx, r, m, value); err != nil {
		return err
	}
	name := fmt.Sprintf("machine.%s/%s", v1alpha1.GroupName, m.Name)
	if whenFailed {
		fmt.Fprintf(p.streams.Out, "%s will be preserved when it fails\n", name)
		return nil
	}
	err = p.await(ctx, beginsWithin, func() (bool, error) {
		m, err = r.Machines.Machines(m.Namespace).Get(ctx, m.Name, metav1.GetOptions{})
		return err == nil && machinefacts.IsPreserved(m, p.now()), err
	})
	if errors.Is(err, errTimeout) {
		return fmt.Errorf("%s is annotated, and its preservation has not begun within %s; kubectl mcf why %s shows what it waits for",
			name, beginsWithin, m.Name)
	}
	if err != nil {
		return err
	}
	until := m.Status.CurrentStatus.PreserveExpiryTime.Time
	if period > 0 {
		until = p.now().Add(period).Truncate(time.Second)
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"currentStatus":{"preserveExpiryTime":%q}}}`,
			m.UID, until.UTC().Format(time.RFC3339))
		_, err := r.Machines.Machines(m.Namespace).Patch(ctx, m.Name, types.MergePatchType, patch, patchDefaults(), "status")
		right := observe.Right{Verb: "patch", Resource: "machines." + v1alpha1.GroupName + "/status", Namespace: m.Namespace}
		if err := observe.Explain(err, right); err != nil {
			return fmt.Errorf("%s is preserved until %s, by the fleet's setting; another end was not set: %w", name,
				m.Status.CurrentStatus.PreserveExpiryTime.UTC().Format(time.RFC3339), err)
		}
	}
	fmt.Fprintf(p.streams.Out, "%s is preserved until %s\n", name, until.UTC().Format(time.RFC3339))
	return nil
}

func newUnpreserveCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "unpreserve MACHINE",
		Short: "End the preservation of a machine",
		Long: help(`
End the preservation of a machine, or withdraw a request for it. A machine that runs continues as any other, one that has failed is
replaced. One that its MachineSet preserves by itself gets the value false, so that it does not begin again.`,
			rightToEditMachines, rightToEditNodes),
		Args: cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			r, m, err := p.machine(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			value := ""
			switch machinefacts.PreserveValue(m) {
			case "", v1alpha1.PreserveFalse:
				return fmt.Errorf("expected a machine that is preserved; nothing requests it for %s", m.Name)
			case v1alpha1.PreserveAuto:
				value = v1alpha1.PreserveFalse
			}
			if err := annotatePreserve(cmd.Context(), r, m, value); err != nil {
				return err
			}
			fmt.Fprintf(p.streams.Out, "machine.%s/%s ends its preservation\n", v1alpha1.GroupName, m.Name)
			return nil
		}),
	}
}

const rightToHold = "patch the Namespace; with -A get and patch the leader Lease in the fleet's namespace (role …:operator of the chart)"

func newHoldCommand(p *program) *cobra.Command {
	reason := ""
	cmd := &cobra.Command{
		Use:   "hold",
		Short: "Hold all deletions of machines, in a namespace or in all",
		Long: help(`
Hold deletions: until kubectl mcf release, the fleet deletes no machine that may run pods, and no orphan at a cloud, for scale-downs,
rollouts and replacements. What a client deletes itself is not held.`, rightToHold),
		Example: "  kubectl mcf hold -n prod --reason \"incident 7\"\n  kubectl mcf hold -A --reason \"incident 7\"",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if text := strings.TrimSpace(reason); text == "" || text == "false" {
				return errors.New("--reason: expected a reason, which conditions and Events show to others")
			}
			return ran(p.hold(cmd.Context(), reason))
		},
	}
	p.namespacesFlag(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for others")
	return cmd
}

func newReleaseCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release",
		Short: "End a hold of deletions",
		Long: help(`
End a hold of deletions. What waited is deleted then: kubectl mcf status shows it before. A hold of a namespace and that of all are
independent.`, rightToHold),
		Example: "  kubectl mcf release -n prod\n  kubectl mcf release -A",
		Args:    cobra.NoArgs,
		RunE:    run(func(cmd *cobra.Command, _ []string) error { return p.hold(cmd.Context(), "") }),
	}
	p.namespacesFlag(cmd)
	return cmd
}

// hold holds deletions for a reason, or ends that for "", in the namespace of the command or in
// all.
func (p *program) hold(ctx context.Context, reason string) error {
	r, namespace, err := p.readerIn()
	if err != nil {
		return err
	}
	patch := annotation(v1alpha1.AnnotationHoldDeletions, reason)
	var before string
	where := "in namespace " + namespace
	if namespace == "" {
		where = "in all namespaces"
		leases, name := r.Control.CoordinationV1().Leases(p.fleetNamespace), membership.LeaderLeaseName(p.fleetName)
		lease, err := leases.Get(ctx, name, metav1.GetOptions{})
		if isGone(err) {
			return fmt.Errorf("expected the Lease %s in namespace %s; set --fleet-name and --fleet-namespace: %w", name, p.fleetNamespace, err)
		}
		if err == nil {
			before = view.HoldOf(lease)
			_, err = leases.Patch(ctx, name, types.MergePatchType, patch, patchDefaults())
		}
		right := observe.Right{Verb: "get and patch", Resource: "leases.coordination.k8s.io", Namespace: p.fleetNamespace}
		if err := observe.Explain(err, right); err != nil {
			return err
		}
	} else {
		namespaces := r.Control.CoreV1().Namespaces()
		n, err := namespaces.Get(ctx, namespace, metav1.GetOptions{})
		if err == nil {
			before = view.HoldOf(n)
			_, err = namespaces.Patch(ctx, namespace, types.MergePatchType, patch, patchDefaults())
		}
		if err := observe.Explain(err, observe.Right{Verb: "get and patch", Resource: "namespaces"}); err != nil {
			return err
		}
	}
	switch {
	case reason != "":
		fmt.Fprintf(p.streams.Out, "deletions are held %s: %s\n", where, reason)
	case before == "":
		fmt.Fprintf(p.streams.Out, "deletions were not held %s\n", where)
	default:
		fmt.Fprintf(p.streams.Out, "deletions are not held %s any more; the reason was: %s\n", where, before)
	}
	return nil
}
