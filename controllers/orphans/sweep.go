package orphans

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// sweep is one sweep of a namespace.
type sweep struct {
	*Controller

	namespace, controlCluster string
	classes                   map[string]bool // the names of all MachineClasses
	uids                      map[types.UID]bool
	scopes                    []*scope  // those that were listed completely
	ends                      time.Time // when the time of the lists, of the reads that confirm, or of the deletions is over
	next                      *scope    // with which the next sweep begins; nil for any
	requests                  []request
	requested                 bool // a request stays, for another sweep
}

// sweep sweeps a namespace. again is after which time to do so once more; 0 means with the next
// plan. Errors: all that failed; what did not depend on it was done.
func (o *Controller) sweep(ctx context.Context, namespace, controlCluster string) (again time.Duration, err error) {
	s := &sweep{Controller: o, namespace: namespace, controlCluster: controlCluster}
	served, err := o.cfg.Served(ctx, namespace)
	if err == nil && !served {
		o.metrics.swept(resultSkipped)
		o.metrics.show(namespace, nil)
		klog.FromContext(ctx).V(2).Info("Skipped sweep of orphans: another manager serves the namespace")
		return 0, nil
	}
	if err == nil {
		err = errors.Join(s.run(ctx), s.endRequests(ctx))
	}
	if err != nil {
		o.metrics.swept(resultIncomplete)
		return 0, fmt.Errorf("sweep orphans of namespace %s: %w", namespace, err)
	}
	o.metrics.swept(resultComplete)
	return s.again(), nil
}

func (s *sweep) run(ctx context.Context) error {
	scopes, err := s.findScopes(ctx)
	s.begins()
	if len(scopes) == 0 {
		return err // a namespace without a driver that can list costs no list of its Machines
	}
	errs := []error{err}
	if s.uids, err = s.listUIDs(ctx); err != nil {
		return errors.Join(append(errs, err)...)
	}
	errs = append(errs, s.listInTurn(ctx, scopes))
	s.uids = nil // the largest part of the sweep's memory
	listed := s.cfg.Clock.Now()
	s.ends = listed.Add(longestConfirm)
	if err := s.confirm(ctx); err != nil {
		errs = append(errs, err)
		for _, sc := range s.scopes {
			sc.verdicts = map[decide.Key]decide.Verdict{} // what could not be read may concern all suspects
		}
	}
	errs = append(errs, s.leaveUnread())
	s.ends = listed.Add(longestRest)
	if err := s.act(ctx); err != nil {
		errs = append(errs, err)
	}
	s.metrics.show(s.namespace, s.scopes)
	return errors.Join(errs...)
}

// listUIDs returns the UIDs of all Machines of the namespace.
func (s *sweep) listUIDs(ctx context.Context) (map[types.UID]bool, error) {
	found := map[types.UID]bool{}
	machines := s.cfg.Metadata.Resource(v1alpha1.SchemeGroupVersion.WithResource("machines")).Namespace(s.namespace)
	return found,
		decode.EachObject(ctx, "the Machines", metav1.ListOptions{Limit: s.rules.page}, machines.List, func(m *metav1.PartialObjectMetadata) {
			found[m.UID] = true
		})
}

const (
	// mostListed is how many resources one scope has at most: some for each VM.
	mostListed = 4 * driver.MaxListed
	// mostPages is how many pages its list has at most: a cloud may leave most of a page to other
	// owners.
	mostPages = 10 * mostListed / driver.MaxResources
	// longestList is how long the lists of one sweep take at most, and longestRest the reads and
	// deletions that follow them: other namespaces wait meanwhile. A cloud can send each page a moment
	// before its call ends.
	longestList, longestRest = 30 * time.Minute, 15 * time.Minute
	// longestConfirm is how much of longestRest the reads take at most, so that there is time to
	// delete what they confirm.
	longestConfirm = 10 * time.Minute
	// mostSuspects is how many suspects a sweep has in memory, but for those of one more scope.
	mostSuspects = 10 * decide.MaxSuspects
)

// isOver reports whether the time of this part of the sweep is over.
func (s *sweep) isOver() bool { return s.cfg.Clock.Now().After(s.ends) }

// listInTurn lists scopes within the bounds of a sweep.
func (s *sweep) listInTurn(ctx context.Context, scopes []*scope) error {
	scopes = s.fromFirst(scopes)
	s.ends = s.cfg.Clock.Now().Add(longestList)
	var errs []error
	suspects := 0
	for i, sc := range scopes {
		full := suspects >= mostSuspects
		if !full && (i == 0 || !s.isOver()) {
			err := s.list(ctx, sc)
			if err == nil {
				s.scopes = append(s.scopes, sc)
				suspects += len(sc.suspects)
				continue
			}
			errs = append(errs, err)
		}
		if i > 0 && (full || s.isOver()) {
			s.beginWith(sc)
			return errors.Join(append(errs, fmt.Errorf(
				"list the resources of %d MachineClasses: expected the end within %s and at most %d suspects, got more; "+
					"later sweeps list MachineClass %s and those after it",
				len(scopes), longestList, mostSuspects, sc.class.Name))...)
		}
	}
	return errors.Join(errs...)
}

// fromFirst returns scopes in the order of this sweep, of its lists and of what follows them.
func (s *sweep) fromFirst(scopes []*scope) []*scope {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.first[s.namespace]
	delete(s.first, s.namespace)
	first := max(slices.IndexFunc(scopes, func(sc *scope) bool { return sc.key == key }), 0)
	scopes = slices.Concat(scopes[first:], scopes[:first])
	for turn, sc := range scopes {
		sc.turn = turn
	}
	return scopes
}

// beginWith has the next sweep begin with a scope that was not listed, confirmed or deleted in
// time: with the first one in the order of this sweep, but for that with which it began. That had
// all of the time, so that each scope has it in its turn, whichever part of a sweep is slow.
func (s *sweep) beginWith(sc *scope) {
	if sc.turn == 0 || s.next != nil && s.next.turn <= sc.turn {
		return
	}
	s.next = sc
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first[s.namespace] = sc.key
}

// list lists a scope, and determines its suspects and its next record.
func (s *sweep) list(ctx context.Context, sc *scope) error {
	sc.before = s.recorded(sc)
	listing := decide.NewListing(s.namespace, s.uids, sc.before)
	request, count := driver.ListResourcesRequest{ScopeRequest: sc.request}, 0
	for page := 1; ; page++ {
		answer, err := sc.sweeper.ListResources(ctx, request)
		if err != nil {
			return fmt.Errorf("list the resources of MachineClass %s: %w", sc.class.Name, err)
		}
		listing.Add(answer.Items)
		if count += len(answer.Items); count > mostListed {
			return fmt.Errorf("list the resources of MachineClass %s: expected at most %d, got more; the driver repeats pages",
				sc.class.Name, mostListed)
		}
		if request.Continue = answer.Continue; request.Continue == "" {
			break
		}
		if page == mostPages || s.isOver() {
			return fmt.Errorf(
				"list the resources of MachineClass %s: expected the end within %d pages and, with other lists of the sweep, %s, got none",
				sc.class.Name, mostPages, longestList,
			)
		}
	}
	for _, vm := range listing.Doubles() {
		machine, err := s.readMachine(ctx, vm.Machine)
		if err != nil {
			return err
		}
		if machine != nil && machine.UID == vm.MachineUID {
			listing.Double(vm.MachineUID, machine.ProviderID)
		}
	}
	sc.suspects, sc.more = listing.Suspects()
	for _, suspect := range sc.suspects {
		if _, known := sc.before.Suspects[suspect.Key()]; !known {
			klog.FromContext(ctx).Info("Suspected orphan",
				append(keysOf(suspect.Resource), telemetry.KeyMachineClass, klog.KObj(sc.class), "surplus", suspect.Surplus)...)
		}
	}
	return nil
}

// recorded returns the suspicions of a scope as of now. Their age grows only while this process
// observes the same record: the time between two leaders does not count.
func (s *sweep) recorded(sc *scope) decide.Record {
	record := decide.ParseRecord(sc.class.Annotations[v1alpha1.AnnotationOrphans], sc.key)
	key, now := types.NamespacedName{Namespace: s.namespace, Name: sc.class.Name}, s.cfg.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	sc.seen = s.seen[key]
	if sc.seen.write != record.Write || sc.seen.at.IsZero() {
		sc.seen = sighting{record.Write, now}
		s.seen[key] = sc.seen
	}
	sc.stored = record
	return record.Aged(now.Sub(sc.seen.at))
}

// record writes the next record of a scope, and removes an approval that it contains. Errors: also
// a class that has changed since it was read; nothing is deleted then.
func (s *sweep) record(ctx context.Context, sc *scope, approved bool) error {
	now := s.cfg.Clock.Now()
	next := s.rules.next(sc.stored.Aged(now.Sub(sc.seen.at)), sc.suspects, sc.more)
	if approved {
		next = next.Approve(sc.suspectsThat(decide.Hold))
	}
	if next.Text() == "" && sc.class.Annotations[v1alpha1.AnnotationOrphans] == "" && !approved {
		return nil // no suspicions before and now
	}
	return s.write(ctx, sc, next, now, approved)
}

// recordOutcomes records which deletions have receipts. Without that they have further ones when
// the resource is found again.
func (s *sweep) recordOutcomes(ctx context.Context, sc *scope, outcomes map[decide.Key]receipt.Outcome) error {
	if len(outcomes) == 0 {
		return nil
	}
	now := s.cfg.Clock.Now()
	return s.write(ctx, sc, sc.stored.Aged(now.Sub(sc.seen.at)).WithOutcomes(outcomes), now, false)
}

// mostWrites is how often a record is written at most while other clients write the same class.
const mostWrites = 3

// write writes a record as of a time, and removes the approval if it was acted upon. Errors: also a
// class that differs by now in what the sweep depends on.
func (s *sweep) write(ctx context.Context, sc *scope, next decide.Record, now time.Time, approved bool) error {
	next.Write = s.cfg.Token()
	text := next.Text()
	annotations := map[string]any{v1alpha1.AnnotationOrphans: text}
	if text == "" {
		annotations[v1alpha1.AnnotationOrphans] = nil
	}
	if approved {
		annotations[v1alpha1.AnnotationDeleteOrphans] = nil
	}
	written, err := s.annotate(ctx, sc.class, annotations)
	for tries := 1; apierrors.IsConflict(err) && tries < mostWrites; tries++ {
		live, readErr := s.cfg.Machines.MachineClasses(s.namespace).Get(ctx, sc.class.Name, metav1.GetOptions{})
		if readErr != nil || !sameForSweeps(sc.class, live) {
			break
		}
		written, err = s.annotate(ctx, live, annotations)
	}
	if err != nil {
		return fmt.Errorf("record the suspicions on MachineClass %s: %w", sc.class.Name, err)
	}
	sc.class, sc.stored, sc.seen = written, next, sighting{next.Write, now}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[types.NamespacedName{Namespace: s.namespace, Name: sc.class.Name}] = sc.seen
	return nil
}

// annotate changes annotations of a class that has not changed meanwhile.
func (s *sweep) annotate(ctx context.Context, class *v1alpha1.MachineClass, annotations map[string]any) (*v1alpha1.MachineClass, error) {
	change, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": class.UID, "resourceVersion": class.ResourceVersion, "annotations": annotations,
	}})
	if err != nil {
		return nil, fmt.Errorf("encode annotations: %w", err)
	}
	return s.cfg.Machines.MachineClasses(s.namespace).Patch(ctx, class.Name, types.MergePatchType, change, metav1.PatchOptions{})
}

// sameForSweeps reports whether two versions of a class differ at most in metadata that sweeps do
// not depend on.
func sameForSweeps(one, other *v1alpha1.MachineClass) bool {
	bare := func(class *v1alpha1.MachineClass) v1alpha1.MachineClass {
		c := *class
		c.TypeMeta, c.ObjectMeta = metav1.TypeMeta{}, metav1.ObjectMeta{ // items of lists have no TypeMeta
			UID: class.UID, DeletionTimestamp: class.DeletionTimestamp,
			Annotations: map[string]string{
				v1alpha1.AnnotationOrphans:       class.Annotations[v1alpha1.AnnotationOrphans],
				v1alpha1.AnnotationDeleteOrphans: class.Annotations[v1alpha1.AnnotationDeleteOrphans],
			},
		}
		return c
	}
	return apiequality.Semantic.DeepEqual(bare(one), bare(other))
}

// suspectsThat returns the suspects with a decision.
func (sc *scope) suspectsThat(do decide.Decision) (found []decide.Suspect) {
	for _, suspect := range sc.suspects {
		if verdict, decided := sc.verdicts[suspect.Key()]; decided && verdict.Do == do {
			found = append(found, suspect)
		}
	}
	return found
}

// isApproved reports whether a person has approved the deletion of exactly the suspects that are
// held. Which these are is not known while some are not confirmed.
func (sc *scope) isApproved() bool {
	held := sc.suspectsThat(decide.Hold)
	return len(held) > 0 && len(sc.unread) == 0 && sc.class.Annotations[v1alpha1.AnnotationDeleteOrphans] == decide.Digest(held)
}

// keysOf returns a resource for logs.
func keysOf(r driver.Resource) []any {
	return []any{"kind", r.Kind, "id", r.ID, telemetry.KeyMachine, klog.KRef(r.Namespace, r.Machine), "machineUID", r.MachineUID}
}

// sorted returns the scopes by the names of their classes.
func sorted(scopes map[string]*scope) []*scope {
	all := make([]*scope, 0, len(scopes))
	for _, sc := range scopes {
		all = append(all, sc)
	}
	slices.SortFunc(all, func(a, b *scope) int { return compareClasses(a.class, b.class) })
	return all
}
