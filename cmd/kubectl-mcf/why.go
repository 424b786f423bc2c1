package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/observe"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/text"
)

const (
	rightToReadEvents = "list events of events.k8s.io (role view), for decisions"
	rightToReadLeases = "list leases of coordination.k8s.io in the fleet's namespace, for the holders of slots"
)

// machineName returns the name in an argument such as workers-a or mc/workers-a.
func machineName(arg string) (string, error) {
	kind, name, isTyped := strings.Cut(arg, "/")
	if !isTyped {
		return arg, nil
	}
	switch strings.TrimSuffix(strings.ToLower(kind), "."+v1alpha1.GroupName) {
	case "mc", "machine", "machines":
		return name, nil
	}
	return "", usage("expected the name of a Machine, as in workers-a or mc/workers-a, got %q", arg)
}

func newWhyCommand(p *program) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "why MACHINE",
		Short: "Show what a machine waits for, who reconciles it, and why it is as it is",
		Long: help(`
Show what a machine waits for and until when, which replica reconciles it, what above it holds it, and what was decided for it, with the
evidence: its last operation, its conditions and its Events. It works after the deletion of the machine, too, while its Events are kept
or with the deletion log of the fleet (--receipts; one line of JSON for each deletion). Times are those of a fleet with default flags
where the machine sets none.`,
			rightToRead, rightToReadEvents, rightToReadLeases,
			"get namespaces, for holds of deletions; get nodes of the target cluster, of a machine that is being deleted"),
		Example: "  kubectl mcf why workers-6f-bcdfg\n  kubectl mcf why workers-6f-bcdfg --receipts deletions.jsonl",
		Args:    cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			name, err := machineName(args[0])
			if err != nil {
				return err
			}
			receipts, err := readReceipts(file)
			if err != nil {
				return err
			}
			r, namespace, err := p.readerIn()
			if err != nil {
				return err
			}
			scope := observe.Scope{Namespace: namespace, Machines: true, Leases: true, Namespaces: true, EventsOf: name}
			s, err := r.Read(cmd.Context(), p.now(), scope)
			if err != nil {
				return err
			}
			for _, m := range s.Machines {
				if node := m.Labels[v1alpha1.LabelNode]; m.Name == name && node != "" && m.DeletionTimestamp != nil {
					r.Node(cmd.Context(), &s, node)
				}
			}
			y, err := view.WhyOf(s, namespace, name, receipts)
			if err != nil {
				return err
			}
			return p.print(y, []view.Object{y.Object}, func(style text.Style) string { return text.Why(y, style) })
		}),
	}
	p.outputFlag(cmd)
	cmd.Flags().StringVar(&file, "receipts", "", "file with the deletion log of the fleet; - reads it from the standard input")
	return cmd
}

// readReceipts reads a deletion log. A line that is no receipt is left out: the file may be
// truncated at a rotation.
func readReceipts(name string) (receipts []receipt.Receipt, err error) {
	if name == "" {
		return nil, nil
	}
	var from io.Reader = os.Stdin
	if name != "-" {
		file, err := os.Open(name) //nolint:gosec // the file that the user names
		if err != nil {
			return nil, fmt.Errorf("--receipts: %w", err)
		}
		defer file.Close() //nolint:errcheck // it was read only
		from = file
	}
	lines, bad := bufio.NewScanner(from), 0
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r receipt.Receipt
		if json.Unmarshal(lines.Bytes(), &r) != nil || !r.IsValid() {
			bad++
			continue
		}
		receipts = append(receipts, r)
	}
	if len(receipts) == 0 && bad > 0 {
		return nil, fmt.Errorf("--receipts: expected lines of JSON as --deletion-log writes them, got %d others", bad)
	}
	return receipts, lines.Err()
}

func newDrainCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Show the drain of a Node: which pods block it, by which budgets, and when it is forced",
		Long: help(`
Show what a drain of a Node by the fleet waits for: its pods, the PodDisruptionBudgets that block them, and when the drain is forced.
Of a Node that is not being drained it shows what a drain would find. It changes nothing: delete the Machine, or scale its
MachineDeployment down, to have the fleet drain its Node.`,
			"get nodes, list pods and poddisruptionbudgets of the target cluster",
			rightToRead+", for the machine of the Node"),
		Example: "  kubectl mcf drain workers-6f-bcdfg",
		Args:    cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			r, err := p.reader()
			if err != nil {
				return err
			}
			node, err := nodeToDrain(cmd.Context(), r, args[0])
			if err != nil {
				return err
			}
			ref, bound := v1alpha1.MachineOf(node)
			if !bound {
				if ref.Namespace, err = p.namespace(); err != nil {
					return err
				}
			}
			s, err := r.Read(cmd.Context(), p.now(), observe.Scope{PodsOf: node.Name})
			if err != nil {
				return err
			}
			inControl, err := r.Read(cmd.Context(), p.now(), observe.Scope{Namespace: ref.Namespace, Machines: true})
			if err != nil {
				s.Missing = append(s.Missing, view.Missing{What: "Machines", Why: err.Error()})
			}
			m, err := inControl.FindMachine(node)
			if err != nil && len(s.Missing) == 0 {
				s.Missing = append(s.Missing, view.Missing{What: "The machine and its timeouts", Why: err.Error()})
			}
			d := view.DrainOf(s, node, m)
			return p.print(d, []view.Object{{Kind: view.KindNode, Name: node.Name}}, func(style text.Style) string { return text.Drain(d, style) })
		}),
	}
	p.outputFlag(cmd)
	return cmd
}

// nodeToDrain reads a Node of the target cluster.
func nodeToDrain(ctx context.Context, r observe.Reader, name string) (*corev1.Node, error) {
	if r.Target == nil {
		return nil, errors.New("expected a target cluster, whose Nodes are drained; --no-target is set")
	}
	node, err := r.Target.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && r.IsAssumed {
		return nil, fmt.Errorf("%w; %s", err, elsewhere)
	}
	if err != nil {
		return nil, observe.Explain(err, observe.Right{Verb: "get", Resource: "nodes", Cluster: "target"})
	}
	return node, nil
}
