package deletion

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// Deletion is a deletion that is about to be requested. Object and Reason are required.
type Deletion struct {
	receipt.Object
	receipt.Reason
	// About are the objects that get the Event Deleting when the deletion is accepted: the Machine,
	// and its root unless that gets one Event for several machines.
	About []runtime.Object
	// Recorded is the outcome on the last receipt of the same deletion; "" without one. There is no
	// second receipt of an outcome, and none after the deletion was accepted.
	Recorded receipt.Outcome
}

// OfMachine returns the deletion of a Machine, with an Event about it.
func OfMachine(m *v1alpha1.Machine, why receipt.Reason) Deletion {
	return Deletion{
		Object: receipt.Object{
			Kind:       receipt.Machine,
			Namespace:  m.Namespace,
			Name:       m.Name,
			UID:        m.UID,
			ProviderID: m.Spec.ProviderID,
			Node:       m.Labels[v1alpha1.LabelNode],
		},
		Reason: why, About: []runtime.Object{m},
	}
}

// mostNamed is how many of several deleted machines the Event of their root names.
const mostNamed = 5

// TextOfAll returns the message of an Event for several deletions of Machines under one ownership.
func TextOfAll(ctx context.Context, all []Deletion) string {
	named := make([]string, 0, mostNamed+1)
	for _, d := range all[:min(len(all), mostNamed)] {
		name := d.Name
		if d.Node != "" {
			name += " (Node " + d.Node + ")"
		}
		named = append(named, name+": "+d.Text())
	}
	if more := len(all) - len(named); more > 0 {
		named = append(named, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("Deleted %d machines, by %s: %s", len(all), byOf(ctx).Text(), strings.Join(named, "; "))
}

// ErrNothing is returned by a request that was answered and that had nothing to delete. It has no
// receipt.
var ErrNothing = errors.New("nothing was deleted")

// Recorder sends requests that delete and records their receipts. It is safe for concurrent use.
type Recorder struct {
	clock    clock.PassiveClock
	file     *File
	receipts *prometheus.CounterVec
	unlogged prometheus.Counter

	mu   sync.Mutex
	last []receipt.Receipt // at most mostLast, the latest last
}

// mostLast is how many receipts a Recorder keeps.
const mostLast = 100

// Last returns the last receipts of this process, the latest last.
func (r *Recorder) Last() []receipt.Receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.last)
}

func (r *Recorder) keep(rc receipt.Receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.last) == mostLast {
		r.last = slices.Delete(r.last, 0, 1)
	}
	r.last = append(r.last, rc)
}

// NewRecorder returns a Recorder. A nil file means that there is no deletion log, and a nil
// registry that receipts are not counted. There is a series for each kind and rule from the start:
// the increase of one that appears later would miss its first deletion.
func NewRecorder(c clock.PassiveClock, file *File, registry prometheus.Registerer) *Recorder {
	r := &Recorder{
		clock: c, file: file,
		receipts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mcf_deletions_total", Help: "Deletions of Machines, Nodes and resources at clouds that this replica has started.",
		}, []string{"kind", "rule"}),
		unlogged: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "mcf_deletion_log_errors_total", Help: "Receipts that could not be written to the deletion log.",
		}),
	}
	for kind, rules := range receipt.ByKind() {
		for _, rule := range rules {
			r.receipts.WithLabelValues(string(kind), string(rule))
		}
	}
	for _, kind := range driver.ResourceKinds() {
		r.receipts.WithLabelValues(string(kind), string(receipt.Orphaned))
	}
	if registry != nil {
		registry.MustRegister(r.receipts, r.unlogged)
	}
	return r
}

// Delete calls request, which sends the request that deletes, and records the receipt unless the
// request certainly had no effect. Events are emitted with the recorder of the controller that
// deletes. It returns the outcome on the last receipt of the deletion, and the error of request.
func (r *Recorder) Delete(
	ctx context.Context, emitted events.EventRecorder, d Deletion, request func(context.Context) error,
) (receipt.Outcome, error) {
	err := request(ctx)
	outcome := receipt.Accepted
	switch {
	case err != nil && !mayHaveTakenEffect(err), d.Recorded == receipt.Accepted:
		return d.Recorded, err
	case err != nil:
		outcome = receipt.Unknown
	}
	if outcome != d.Recorded {
		r.record(ctx, emitted, d, outcome)
	}
	return outcome, err
}

// record records a receipt.
func (r *Recorder) record(ctx context.Context, emitted events.EventRecorder, d Deletion, outcome receipt.Outcome) {
	rc := receipt.Receipt{Time: r.clock.Now().UTC(), Object: d.Object, Reason: d.Reason, Outcome: outcome, By: byOf(ctx)}
	r.receipts.WithLabelValues(string(d.Kind), string(d.Rule)).Inc()
	r.keep(rc)
	klog.FromContext(ctx).Info("Started deletion", keysAndValues(ctx, rc)...)
	if outcome == receipt.Accepted { // each process that sends the request again may have another receipt without an answer
		for _, about := range d.About {
			telemetry.EmitAction(emitted, about, nil, v1alpha1.EventDeleting, "Delete"+string(rc.Kind), rc.Text())
		}
	}
	if r.file == nil {
		return
	}
	line, err := rc.Line()
	if err == nil {
		err = r.file.Append(line)
	}
	if err != nil {
		r.unlogged.Inc()
		klog.FromContext(ctx).Error(err, "Failed to write to the deletion log", "kind", rc.Kind, "name", rc.Name)
	}
}

// byOf returns the ownership and the trace in ctx.
func byOf(ctx context.Context) receipt.By {
	var by receipt.By
	if o, known := telemetry.OwnerFrom(ctx); known {
		by = receipt.By{Replica: o.Replica, Session: o.Session, Leader: o.Leader}
		if !o.Leader {
			by.Slot, by.Epoch = &o.Slot, &o.Epoch
		}
	}
	by.TraceID, _ = telemetry.TraceID(ctx)
	return by
}

// keysAndValues returns what a log line has of a receipt, without what is empty. Its ownership and
// trace are those of ctx, whose logs have them.
func keysAndValues(ctx context.Context, rc receipt.Receipt) []any {
	all := append([]any{"kind", rc.Kind}, namesOf(ctx, rc.Object)...)
	for _, pair := range [][2]string{
		{telemetry.KeyProviderID, rc.ProviderID},
		{"uid", string(rc.UID)},
		{"machineUID", string(rc.MachineUID)},
		{"rule", string(rc.Rule)},
		{"evidence", rc.Evidence},
		{"outcome", string(rc.Outcome)},
	} {
		if pair[1] != "" {
			all = append(all, pair[0], pair[1])
		}
	}
	return all
}

// namesOf returns the keys and values that name what is deleted, its machine and its Node.
func namesOf(ctx context.Context, o receipt.Object) []any {
	var names []any
	machine, node := o.Machine, o.Node
	switch o.Kind {
	case receipt.Machine:
		machine = o.Name
	case receipt.Node:
		node = o.Name
	case receipt.VM: // its provider ID names it
	case receipt.RenderedMachineConfig:
		names = append(names, "name", o.Name)
	default:
		names = append(names, "id", o.Name)
	}
	if machine != "" {
		names = append(names, telemetry.NameObject(ctx, telemetry.KeyMachine, klog.KRef(o.Namespace, machine))...)
	}
	if node != "" {
		names = append(names, telemetry.NameObject(ctx, telemetry.KeyNode, node)...)
	}
	return names
}

// mayHaveTakenEffect reports whether a request that has failed may still have deleted something:
// there was no answer, or one of a server that does not know it itself.
func mayHaveTakenEffect(err error) bool {
	if errors.Is(err, ErrNothing) || runner.NotOurs(err) {
		return false // of the latter, the fence has not let it out
	}
	if failure, ok := errors.AsType[*driver.Error](err); ok {
		switch failure.Code { //nolint:exhaustive // all other codes are rejections
		case driver.Canceled, driver.Unknown, driver.DeadlineExceeded, driver.Internal, driver.Unavailable, driver.DataLoss, driver.Aborted:
			return true
		}
		return false
	}
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return status.Status().Code >= http.StatusInternalServerError
	}
	return !utilnet.IsConnectionRefused(err)
}
