package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/observe"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/text"
)

const (
	// fieldManager is this client's name in the managed fields of objects.
	fieldManager = "kubectl-mcf"
	// restartedAt is the annotation of a template by which kubectl restarts a rollout.
	restartedAt = "kubectl.kubernetes.io/restartedAt"
	// pollPeriod is the time between two reads of an object that is waited for.
	pollPeriod = time.Second

	rightToEdit = "patch machinedeployments of " + v1alpha1.GroupName + " (role edit)"
)

func newRolloutCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "See and steer the rollouts of MachineDeployments",
		Long: strings.TrimSpace(`
See and steer the rollouts of MachineDeployments, as kubectl rollout does those of Deployments: with its verbs, its flags and its exit
codes. kubectl rollout itself works on kinds of Kubernetes only.`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRolloutStatusCommand(p), newHistoryCommand(p), newUndoCommand(p),
		newPauseCommand(p, true), newPauseCommand(p, false), newRestartCommand(p))
	return cmd
}

// deploymentName returns the name in an argument such as workers or mcd/workers.
func deploymentName(arg string) (string, error) {
	kind, name, isTyped := strings.Cut(arg, "/")
	if !isTyped {
		return arg, nil
	}
	switch strings.TrimSuffix(strings.ToLower(kind), "."+v1alpha1.GroupName) {
	case "mcd", "machinedeployment", "machinedeployments":
		return name, nil
	}
	return "", usage("expected the name of a MachineDeployment, as in workers or mcd/workers, got %q", arg)
}

// deployment reads a MachineDeployment and its MachineSets.
func (p *program) deployment(ctx context.Context, arg string) (observe.Reader, *v1alpha1.MachineDeployment, []*v1alpha1.MachineSet, error) {
	r, namespace, err := p.readerIn()
	if err != nil {
		return r, nil, nil, err
	}
	name, err := deploymentName(arg)
	if err != nil {
		return r, nil, nil, err
	}
	d, err := r.Machines.MachineDeployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		right := observe.Right{Verb: "get", Resource: "machinedeployments." + v1alpha1.GroupName, Namespace: namespace}
		return r, nil, nil, observe.Explain(err, right)
	}
	s, err := r.Read(ctx, p.now(), observe.Scope{Namespace: namespace, Machines: true})
	return r, d, s.SetsOf(d), err
}

func newRolloutStatusCommand(p *program) *cobra.Command {
	var watch bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "status MACHINEDEPLOYMENT",
		Short: "Show the state of a rollout, and wait for its end",
		Long: help(`
Show the state of a rollout. It waits until the rollout is done, unless --watch=false. Exit codes: 0 it is done (with --watch=false
also while it is under way), 1 it has made no progress for progressDeadlineSeconds, it cannot begin, or --timeout is over.`,
			rightToRead),
		Example: "  kubectl mcf rollout status workers --timeout 10m",
		Args:    cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			r, d, owned, err := p.deployment(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			v := view.RolloutOf(d, owned)
			if p.output != "" && p.output != outputWide {
				watch = false
			}
			if err := p.print(v, []view.Object{v.Object}, func(style text.Style) string { return text.Rollout(v, style) }); err != nil {
				return err
			}
			return p.awaitRollout(cmd.Context(), r, v, watch, timeout)
		}),
	}
	p.outputFlag(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", true, "wait until the rollout is done")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait; 0 has no limit")
	return cmd
}

// errTimeout is the error of a wait that has taken too long.
var errTimeout = errors.New("timed out")

// await calls done once a pollPeriod until it returns true or an error. Errors: that of done;
// errTimeout after the timeout, if that is not 0; that of the context.
func (p *program) await(ctx context.Context, timeout time.Duration, done func() (bool, error)) error {
	ticker := p.clock.NewTicker(pollPeriod)
	defer ticker.Stop()
	begin := p.now()
	for {
		if is, err := done(); is || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now := <-ticker.C():
			if timeout > 0 && now.Sub(begin) >= timeout {
				return errTimeout
			}
		}
	}
}

// awaitRollout prints each change of a rollout until its end.
func (p *program) awaitRollout(ctx context.Context, r observe.Reader, v view.Rollout, watch bool, timeout time.Duration) error {
	shown := v
	err := p.await(ctx, timeout, func() (bool, error) {
		if v.Failed {
			return false, fmt.Errorf("the rollout of machinedeployment %s has failed", v.Name)
		}
		if v.Done || !watch {
			return true, nil
		}
		d, err := r.Machines.MachineDeployments(v.Namespace).Get(ctx, v.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if v = view.RolloutOf(d, nil); v.Text != shown.Text || v.Stalled != shown.Stalled {
			fmt.Fprint(p.streams.Out, text.Rollout(v, p.style()))
			shown = v
		}
		return false, nil
	})
	if errors.Is(err, errTimeout) {
		return fmt.Errorf("the rollout of machinedeployment %s is not done after %s; kubectl mcf tree %s shows what it waits for",
			v.Name, timeout, v.Name)
	}
	return err
}

func newHistoryCommand(p *program) *cobra.Command {
	var number int64
	cmd := &cobra.Command{
		Use:     "history MACHINEDEPLOYMENT",
		Short:   "List the revisions of a MachineDeployment",
		Long:    help("List the revisions of a MachineDeployment, or with --revision show the template of one.", rightToRead),
		Example: "  kubectl mcf rollout history workers --revision 3",
		Args:    cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			_, d, owned, err := p.deployment(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			h := view.HistoryOf(d, owned)
			if number == 0 {
				return p.print(h, []view.Object{h.Object}, func(style text.Style) string { return text.History(h, style) })
			}
			revision, err := h.Find(number)
			if err != nil {
				return err
			}
			return p.print(revision, []view.Object{{Kind: view.KindSet, Name: revision.Set}}, func(text.Style) string {
				template, err := yaml.Marshal(revision.Template)
				if err != nil {
					return err.Error() + "\n"
				}
				return fmt.Sprintf("# revision %d, machineset %s\n%s", revision.Revision, revision.Set, template)
			})
		}),
	}
	p.outputFlag(cmd)
	cmd.Flags().Int64Var(&number, "revision", 0, "show the template of this revision")
	return cmd
}

// dryRunFlag adds the flag --dry-run.
func dryRunFlag(cmd *cobra.Command, mode *string) {
	cmd.Flags().StringVar(mode, "dry-run", "none", "none, client (print only) or server (send the request without effect)")
}

// patchOptions returns the options of a patch; send is false with --dry-run=client.
func patchOptions(mode string) (options metav1.PatchOptions, send bool, err error) {
	options.FieldManager = fieldManager
	switch mode {
	case "none":
		return options, true, nil
	case "server":
		options.DryRun = []string{metav1.DryRunAll}
		return options, true, nil
	case "client":
		return options, false, nil
	}
	return options, false, usage("--dry-run: expected none, client or server, got %q", mode)
}

// change is a change of a MachineDeployment.
type change struct {
	patch string
	// done says what was done, in the past: "paused".
	done string
}

// patchDeployment sends a change of a MachineDeployment, unless the dry run is the client's.
func (p *program) patchDeployment(ctx context.Context, r observe.Reader, d *v1alpha1.MachineDeployment, c change, mode string) error {
	options, send, err := patchOptions(mode)
	if err != nil {
		return err
	}
	if send {
		_, err = r.Machines.MachineDeployments(d.Namespace).Patch(ctx, d.Name, types.MergePatchType, []byte(c.patch), options)
		right := observe.Right{Verb: "patch", Resource: "machinedeployments." + v1alpha1.GroupName, Namespace: d.Namespace}
		if err := observe.Explain(err, right); err != nil {
			return err
		}
	}
	note := ""
	if mode != "none" {
		note = " (" + mode + " dry run)"
	}
	fmt.Fprintf(p.streams.Out, "machinedeployment.%s/%s %s%s\n", v1alpha1.GroupName, d.Name, c.done, note)
	return nil
}

func newUndoCommand(p *program) *cobra.Command {
	var number int64
	var mode string
	cmd := &cobra.Command{
		Use:   "undo MACHINEDEPLOYMENT",
		Short: "Roll back to an earlier revision",
		Long: help(`
Request a rollback: the template of the revision before the current one, or that of --to-revision, becomes the current one again,
and machines are replaced as in each rollout. Machines that still have that template stay.`,
			rightToRead, rightToEdit),
		Example: "  kubectl mcf rollout undo workers --to-revision 3",
		Args:    cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			r, d, owned, err := p.deployment(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if d.Spec.Paused {
				return fmt.Errorf("machinedeployment %s is paused, and a rollback would wait; resume it first with kubectl mcf rollout resume %s",
					d.Name, d.Name)
			}
			revision, err := view.HistoryOf(d, owned).Find(number)
			if err != nil {
				return err
			}
			if revision.Current {
				fmt.Fprintf(p.streams.Out, "machinedeployment.%s/%s skipped rollback: it has the template of revision %d already\n",
					v1alpha1.GroupName, d.Name, revision.Revision)
				return nil
			}
			return p.patchDeployment(cmd.Context(), r, d, change{
				fmt.Sprintf(`{"spec":{"rollbackTo":{"revision":%d}}}`, number), fmt.Sprintf("is rolled back to revision %d", revision.Revision),
			}, mode)
		}),
	}
	cmd.Flags().Int64Var(&number, "to-revision", 0, "the revision; 0 is the one before the current one")
	dryRunFlag(cmd, &mode)
	return cmd
}

func newPauseCommand(p *program, pause bool) *cobra.Command {
	verb, state, effect := "resume", "resumed", "Machines are replaced for a change of the template again."
	if pause {
		verb, state = "pause", "paused"
		effect = "Until it is resumed, no machine is replaced for a change of the template. Changes of replicas are carried out."
	}
	var mode string
	cmd := &cobra.Command{
		Use:   verb + " MACHINEDEPLOYMENT",
		Short: strings.ToUpper(verb[:1]) + verb[1:] + " the rollouts of a MachineDeployment",
		Long:  help(effect, rightToRead, rightToEdit),
		Args:  cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			r, d, _, err := p.deployment(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if d.Spec.Paused == pause {
				return fmt.Errorf("expected machinedeployment %s not to be %s; it is already", d.Name, state)
			}
			return p.patchDeployment(cmd.Context(), r, d, change{fmt.Sprintf(`{"spec":{"paused":%t}}`, pause), state}, mode)
		}),
	}
	dryRunFlag(cmd, &mode)
	return cmd
}

func newRestartCommand(p *program) *cobra.Command {
	var mode string
	cmd := &cobra.Command{
		Use:   "restart MACHINEDEPLOYMENT",
		Short: "Replace all machines of a MachineDeployment",
		Long: help(`
Replace all machines of a MachineDeployment by its strategy, though nothing else of its template changes: it gets the annotation
`+restartedAt+`. With the strategy InPlaceUpdate the machines keep their VMs, and their agents get a new template.`,
			rightToRead, rightToEdit),
		Args: cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			r, d, _, err := p.deployment(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if d.Spec.Paused {
				return fmt.Errorf("machinedeployment %s is paused, and its machines would not be replaced; resume it first with "+
					"kubectl mcf rollout resume %s", d.Name, d.Name)
			}
			patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`, restartedAt, p.now().UTC().Format(time.RFC3339))
			return p.patchDeployment(cmd.Context(), r, d, change{patch, "restarted"}, mode)
		}),
	}
	dryRunFlag(cmd, &mode)
	return cmd
}

// isGone reports whether an object does not exist.
func isGone(err error) bool { return apierrors.IsNotFound(err) }
