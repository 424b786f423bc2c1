//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/ring"
)

// slots of the lab with three replicas. Its tests take them over, hand them over and wait until all are held, many times; with the default
// number of them TestKubectlGetLeases, the faults (e2e/chaos) and the chart (e2e/helm) do.
const slots = 64

// fleetLab is a lab with three replicas. TestMain stops it.
var fleetLab = sync.OnceValues(func() (*harness.Lab, error) {
	ctx := context.Background()
	lab, err := harness.Up(ctx, harness.Options{Dir: filepath.Join(os.Getenv(labsVariable), "fleet"), Replicas: 3, Slots: slots})
	if err != nil {
		return nil, err
	}
	return lab, held(ctx, lab)
})

// held waits until all slots of a lab are held. A new fleet creates their Leases first, which takes a machine that starts other labs
// meanwhile minutes.
func held(ctx context.Context, lab *harness.Lab) error {
	return lab.WaitHeld(ctx, lab.SlotCount)
}

// fleetLock is held exclusively by tests that stop the fleet.
var fleetLock sync.RWMutex

// fleet returns the lab for a test that does not stop replicas.
func fleet(t *testing.T) *harness.Lab {
	t.Helper()
	fleetLock.RLock()
	t.Cleanup(fleetLock.RUnlock)
	return openFleet(t)
}

// fleetWithoutProxies returns the lab for a test that stops replicas, and starts them again when it ends.
func fleetWithoutProxies(t *testing.T) *harness.Lab {
	t.Helper()
	fleetLock.Lock()
	t.Cleanup(fleetLock.Unlock)
	return openFleet(t)
}

func openFleet(t *testing.T) *harness.Lab {
	t.Helper()
	lab, err := fleetLab()
	if err != nil {
		t.Fatal(err)
	}
	return lab
}

// Slots of the lab with three replicas, one for each test beside which others run: some move theirs, and one takes the holder away.
const (
	slotOfServedAlone = iota
	slotOfUnowned
	slotOfByHand
	slotOfMoved
	slotOfGivenUp
	slotOfExpired
)

// fleetSpace creates a namespace in the lab with three replicas whose root pool is in a slot, for a test that does not stop replicas.
func fleetSpace(t *testing.T, name string, slot int) *space {
	t.Helper()
	lab, namespace := fleet(t), unused(name)
	for slotOf(t, lab, namespace, "pool") != slot {
		namespace = unused(name)
	}
	return newSpaceBy(t, lab, namespace, func(ctx context.Context, namespace string) error { return lab.Prepare(ctx, namespace, "") })
}

// inSlot returns a name of a root of the namespace that is in a slot. No Node of another test has the name.
func (s *space) inSlot(slot int) string {
	s.Helper()
	for i := 0; ; i++ {
		if name := fmt.Sprintf("%s-%d", s.name, i); slotOf(s.T, s.lab, s.name, name) == slot {
			return name
		}
	}
}

// slotOf returns the slot of a root.
func slotOf(t *testing.T, lab *harness.Lab, namespace, root string) int {
	t.Helper()
	spread, err := ring.NewSlots(lab.SlotCount, ring.Deployment)
	if err != nil {
		t.Fatal(err)
	}
	return spread.Of(namespace, root)
}

func slotLease(lab *harness.Lab, slot int) string {
	return member.SlotLeaseName(harness.FleetName, slot, lab.SlotCount)
}

// TestOtherSettingsRefuseToStart starts replicas with other settings than those that the fleet was installed with.
func TestOtherSettingsRefuseToStart(t *testing.T) {
	t.Parallel()
	lab := fleet(t)
	config := member.DefaultConfig()
	for _, tc := range []struct{ flag, want, got string }{
		{"--slots", strconv.Itoa(slots), "128"},
		{"--shard-by", string(ring.Deployment), string(ring.Namespace)},
		{"--lease-fence", config.Fence.String(), "10s"},
		{"--lease-take-over", config.TakeOver.String(), "20s"},
	} {
		t.Run(tc.flag, func(t *testing.T) {
			why := fmt.Sprintf("%s: the fleet was installed with %s, got %s", tc.flag, tc.want, tc.got)
			refusesToStart(t, lab, why, "--fleet-namespace="+harness.FleetNamespace, tc.flag+"="+tc.got)
		})
	}
	t.Run("the hash", func(t *testing.T) {
		const elsewhere, older = "installed-with-another-hash", "0"
		recordedElsewhere(t, lab, elsewhere, v1alpha1.AnnotationRingVersion, older)
		why := fmt.Sprintf("the ring's version: the fleet was installed with %s, got %s", older, ring.Version)
		refusesToStart(t, lab, why, "--fleet-namespace="+elsewhere)
	})
	sessions, err := lab.Control.CoordinationV1().Leases(harness.FleetNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelLease + "=" + v1alpha1.LeaseOfSession})
	if err != nil {
		t.Fatal(err)
	}
	for _, session := range sessions.Items {
		if strings.Contains(session.Name, "other") {
			t.Errorf("it has begun a session: %s", session.Name)
		}
	}
}

// refusesToStart starts a replica with other flags, and waits until it has ended and logged the reason.
func refusesToStart(t *testing.T, lab *harness.Lab, why string, flags ...string) {
	t.Helper()
	bin, err := harness.Bin()
	if err != nil {
		t.Fatal(err)
	}
	replica := exec.CommandContext(t.Context(), filepath.Join(bin, "machine-controller-fleet"), append([]string{
		"--replica-name=other", "--address=127.0.0.1", "--port=" + harness.FreePort(t.Context(), t),
		"--control-kubeconfig=" + filepath.Join(lab.Dir, "admin.kubeconfig"),
		"--target-kubeconfig=" + filepath.Join(lab.Dir, "target.kubeconfig"),
	}, flags...)...)
	output, err := replica.CombinedOutput()
	if failed, ok := errors.AsType[*exec.ExitError](err); !ok || failed.ExitCode() != 1 {
		t.Fatalf("want it to exit 1, got %v:\n%s", err, output)
	}
	if !strings.Contains(string(output), why) {
		t.Errorf("want %q in its log, got:\n%s", why, output)
	}
}

// recordedElsewhere creates a leader Lease in another namespace with the settings of the lab's, except one.
func recordedElsewhere(t *testing.T, lab *harness.Lab, namespace, annotation, value string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := lab.Control.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	name := member.LeaderLeaseName(harness.FleetName)
	recorded, err := lab.Control.CoordinationV1().Leases(harness.FleetNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if recorded.Annotations[annotation] == "" {
		t.Fatalf("want the leader Lease to record %s, got %v", annotation, recorded.Annotations)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: recorded.Annotations}}
	lease.Annotations[annotation] = value
	if _, err := lab.Control.CoordinationV1().Leases(namespace).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestNamespaceIsServedAlone: the fleet does not serve a namespace while another client renews the Leases of Machine Controller
// Manager there.
func TestNamespaceIsServedAlone(t *testing.T) {
	t.Parallel()
	s := fleetSpace(t, "served-alone", slotOfServedAlone)
	const other, takeOver = "mcm-of-another-fleet", 15 * time.Second
	position, err := s.lab.AuditEnd()
	s.must(err)
	stop := s.renew(s.name, other, nil, v1alpha1.LeaseManager, v1alpha1.LeaseMachineController)
	begun := time.Now()
	d, bare := s.deploy("pool", 2), s.createMachine(s.inSlot(slotOfServedAlone))
	s.emitted(d, v1alpha1.EventNotAlone, other)
	s.emitted(bare, v1alpha1.EventNotAlone, other)
	s.atLeastOne("mcf_refused_namespaces")

	wait(t, time.Until(begun.Add(takeOver+3*time.Second))) // longer than the wait for an earlier holder
	last := stop()
	requests, err := s.lab.Requests(position)
	s.must(err)
	for _, r := range requests {
		if r.Namespace == s.name && strings.HasPrefix(r.User, "fleet-") && r.IsWrite() && r.Resource != "events" && r.Code < 300 {
			t.Errorf("while another controller serves the namespace, %s did %s %s/%s", r.User, r.Verb, r.Resource, r.Name)
		}
	}
	s.running("pool", 2)
	s.joined()
	for _, lease := range s.leasesOfMCM(t.Context()) {
		if holder := member.Holder(&lease); !strings.Contains(holder, harness.FleetName) {
			t.Fatalf("Lease %s is held by %q, want the fleet", lease.Name, holder)
		}
		if waited := lease.Spec.AcquireTime.Sub(last); waited < takeOver {
			t.Errorf("Lease %s was taken %s after its last renewal, want at least %s", lease.Name, waited, takeOver)
		}
	}
}

// renew creates Leases with a holder and renews them every second, until the returned function is called or the test ends.
// It returns when the last renewal was begun.
func (s *space) renew(namespace, holder string, meta *metav1.ObjectMeta, names ...string) (stop func() (last time.Time)) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	leases := s.lab.Control.CoordinationV1().Leases(namespace)
	held := make([]*coordinationv1.Lease, len(names))
	for i, name := range names {
		lease := &coordinationv1.Lease{}
		if meta != nil {
			lease.ObjectMeta = *meta
		}
		lease.Name = name
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NowMicro())}
		var err error
		held[i], err = leases.Create(ctx, lease, metav1.CreateOptions{})
		s.must(err)
	}
	last, renewed := time.Now(), make(chan error, 1)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				renewed <- nil
				return
			case <-tick.C:
			}
			last = time.Now()
			for i, lease := range held {
				lease.Spec.RenewTime = new(metav1.NowMicro())
				written, err := leases.Update(context.WithoutCancel(ctx), lease, metav1.UpdateOptions{})
				if err != nil {
					renewed <- err
					return
				}
				held[i] = written
			}
		}
	}()
	stop = sync.OnceValue(func() time.Time {
		cancel()
		if err := <-renewed; err != nil {
			s.Errorf("renew a Lease: %v", err)
		}
		return last
	})
	s.Cleanup(func() { stop() })
	return stop
}

// emitted waits until a Warning is emitted on an object, and contains a text.
func (s *space) emitted(about metav1.Object, reason, part string) {
	s.Helper()
	s.eventually(fmt.Sprintf("an Event %s is emitted on %s", reason, about.GetName()), func(ctx context.Context) error {
		list, err := s.lab.Control.EventsV1().Events(s.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Regarding.UID == about.GetUID() && e.Reason == reason && e.Type == corev1.EventTypeWarning && strings.Contains(e.Note, part) {
				return nil
			}
		}
		return fmt.Errorf("none of %d does and names %q", len(list.Items), part)
	})
}

// atLeastOne waits until a metric of some replica is at least 1.
func (s *space) atLeastOne(metric string) {
	s.Helper()
	s.eventually(metric+" shows it", func(ctx context.Context) error {
		values, err := s.metrics(ctx, metric)
		for _, value := range values {
			if value >= 1 {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("it is %v", values))
	})
}

// metrics returns the values of a metric by replica.
func (s *space) metrics(ctx context.Context, name string) (map[string]float64, error) {
	replicas, err := s.lab.Replicas(ctx)
	values := map[string]float64{}
	for _, replica := range replicas {
		value, err2 := s.lab.Metric(ctx, replica, name)
		values[replica], err = value, errors.Join(err, err2)
	}
	return values, err
}

// leasesOfMCM returns MCM's Leases of the namespace.
func (s *space) leasesOfMCM(ctx context.Context) (leases []coordinationv1.Lease) {
	s.Helper()
	for _, name := range []string{v1alpha1.LeaseManager, v1alpha1.LeaseMachineController} {
		lease, err := s.lab.Control.CoordinationV1().Leases(s.name).Get(ctx, name, metav1.GetOptions{})
		s.must(err)
		leases = append(leases, *lease)
	}
	return leases
}

// wait waits in real time.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	case <-time.After(d):
	}
}

// TestGrantsAreShown: the grants at /debug/slots contain exactly the slots of the replica, each slot in one grant.
func TestGrantsAreShown(t *testing.T) {
	t.Parallel()
	lab := fleet(t)
	replicas, err := lab.Replicas(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, replica := range replicas {
		eventually(t, replica+" shows the grants of its slots", func(ctx context.Context) error {
			var view struct {
				Here []struct {
					Slot int
					Held bool
				}
				Grants [][]int
			}
			if err := lab.DebugSlots(ctx, replica, &view); err != nil {
				return err
			}
			var held []int
			for _, here := range view.Here {
				if here.Held {
					held = append(held, here.Slot)
				}
			}
			granted := slices.Sorted(slices.Values(slices.Concat(view.Grants...)))
			if len(held) == 0 || len(view.Grants) > 8 || !slices.Equal(granted, held) {
				return fmt.Errorf("it holds %v and has the grants %v", held, view.Grants)
			}
			return nil
		})
	}
}

// TestObjectOfAnUnownedSlotIsVisible keeps a slot in quarantine: a session lives that does not confirm that it has nothing
// of the slot in flight.
func TestObjectOfAnUnownedSlotIsVisible(t *testing.T) {
	t.Parallel()
	s := fleetSpace(t, "unowned", slotOfUnowned)
	d := s.deploy("pool", 0)
	s.eventually("the MachineDeployment is reconciled", func(ctx context.Context) error {
		sets, err := s.api().MachineSets(s.name).List(ctx, metav1.ListOptions{})
		if err == nil && len(sets.Items) == 0 {
			err = errors.New("it has no MachineSet")
		}
		return err
	})

	session := harness.FleetName + "-session-silent"
	stop := s.renew(harness.FleetNamespace, "silent_abcde", &metav1.ObjectMeta{
		Labels:      map[string]string{v1alpha1.LabelFleet: harness.FleetName, v1alpha1.LabelLease: v1alpha1.LeaseOfSession},
		Annotations: map[string]string{v1alpha1.AnnotationLeaving: "true"}, // it gets no slots
	}, session)
	leases := s.lab.Control.CoordinationV1().Leases(harness.FleetNamespace)
	s.must(leases.Delete(t.Context(), slotLease(s.lab, slotOfUnowned), metav1.DeleteOptions{}))
	s.atLeastOne("mcf_unowned_slots")
	s.emitted(d, v1alpha1.EventSlotUnowned, harness.FleetNamespace+"/"+slotLease(s.lab, slotOfUnowned))
	s.oneEvent(d.UID, v1alpha1.EventSlotUnowned)

	stop()
	lease, err := leases.Get(t.Context(), session, metav1.GetOptions{})
	s.must(err)
	lease.Spec.HolderIdentity = nil
	_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
	s.must(err)
	s.eventually("every slot is held again", func(ctx context.Context) error {
		values, err := s.metrics(ctx, "mcf_unowned_slots")
		for replica, value := range values {
			if value > 0 {
				err = errors.Join(err, fmt.Errorf("%s sees %v that are not", replica, value))
			}
		}
		return err
	})
	s.scale("pool", 1)
	s.running("pool", 1)
}
