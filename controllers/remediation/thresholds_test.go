package remediation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// namespaces are the Namespaces of a test: the annotation of each with thresholds.
type namespaces struct {
	mu      sync.Mutex
	known   bool
	denied  bool
	set     map[string]string
	changed []func(string)
}

func (n *namespaces) Known() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known
}

func (n *namespaces) Denied() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.denied
}

func (n *namespaces) Annotation(namespace, key string) (value string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	value, ok = n.set[namespace]
	return value, ok && key == v1alpha1.AnnotationCircuitBreaker
}

func (n *namespaces) OnChange(changed func(string)) { n.changed = append(n.changed, changed) }

// annotate sets the annotation of a Namespace, and has Namespaces be known.
func (n *namespaces) annotate(namespace, text string) {
	n.mu.Lock()
	n.known = true
	n.set = map[string]string{namespace: text}
	n.mu.Unlock()
	for _, changed := range n.changed {
		changed(namespace)
	}
}

// deny has Namespaces not be readable any more.
func (n *namespaces) deny(namespace string) {
	n.mu.Lock()
	n.denied = true
	n.mu.Unlock()
	for _, changed := range n.changed {
		changed(namespace)
	}
}

// annotate sets the annotation of the MachineDeployment; "" removes it.
func (b *bench) annotate(text string) {
	d := b.deployment().DeepCopy()
	d.Annotations = maps.Clone(d.Annotations)
	delete(d.Annotations, v1alpha1.AnnotationCircuitBreaker)
	if text != "" {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationCircuitBreaker, text)
	}
	b.Helper()
	if err := b.api.Tracker().Update(v1alpha1.SchemeGroupVersion.WithResource("machinedeployments"), d, "n"); err != nil {
		b.Fatal(err)
	}
	b.feed(d)
}

// state returns the condition of the MachineDeployment and its number of disruptions.
func (b *bench) state() string {
	is := b.breaker()
	text := fmt.Sprintf("%d disruptions", len(disruptions(b.T, b.deployment())))
	if is == (condition{}) {
		return text
	}
	return fmt.Sprintf("%s %s, %s", is.Status, is.Reason, text)
}

func (b *bench) breaker() condition {
	return machinefacts.ConditionOfDeployment(&b.deployment().Status, v1alpha1.MachineDeploymentCircuitBreakerOpen)
}

// show stores the machines of the set, of which some have been unhealthy since a time.
func (b *bench) show(s *v1alpha1.MachineSet, unhealthy, all int, since time.Time) {
	for i := range all {
		phase := v1alpha1.MachineRunning
		if i < unhealthy {
			phase = v1alpha1.MachineUnknown
		}
		b.join(machine(s, i, phase, since))
	}
}

const (
	isOpen   = "True TargetNotReady, 0 disruptions"
	isClosed = "1 disruptions"
)

// The flags of the bench have not-ready=5,percent=50. The set has 6 machines.
func TestThresholdsOfAnnotations(t *testing.T) {
	for name, tc := range map[string]struct {
		namespace, deployment string
		unhealthy             int
		want                  string
	}{
		"no annotation, too few":                      {"", "", 4, isClosed},
		"no annotation, too many":                     {"", "", 5, isOpen},
		"the Namespace's are stricter":                {"not-ready=4", "", 4, isOpen},
		"the Namespace's are looser":                  {"not-ready=6", "", 5, isClosed},
		"the MachineDeployment's are stricter":        {"", "not-ready=4", 4, isOpen},
		"the MachineDeployment's are looser":          {"", "percent=100", 6, isClosed},
		"both, the MachineDeployment's are stricter":  {"not-ready=6", "not-ready=4", 4, isOpen},
		"both, the MachineDeployment's are looser":    {"not-ready=4", "not-ready=6", 4, isClosed},
		"both, of different keys":                     {"not-ready=4", "try-after=1h", 4, isOpen},
		"the Namespace's are invalid":                 {"not-ready=x", "", 4, "False ThresholdsIgnored, 1 disruptions"},
		"the MachineDeployment's are invalid":         {"not-ready=4", "not-ready=x", 4, isOpen},
		"the Namespace's are invalid, not the others": {"not-ready=x", "not-ready=4", 4, isOpen},
		"tried after a shorter time":                  {"", "not-ready=4,try-after=1m", 4, "True TargetNotReady, 1 disruptions"},
	} {
		t.Run(name, func(t *testing.T) {
			withSet(t, func(b *bench, s *v1alpha1.MachineSet) {
				if tc.namespace != "" {
					b.spaces.annotate("n", tc.namespace)
				}
				if tc.deployment != "" {
					b.annotate(tc.deployment)
				}
				b.wait(5 * time.Second)
				b.show(s, tc.unhealthy, 6, time.Now())
				b.wait(12 * time.Minute) // the health timeout is 10 min
				if got := b.state(); got != tc.want {
					t.Errorf("%s, want %s", got, tc.want)
				}
			})
		})
	}
}

// Annotations change while 4 of 6 machines are not Ready.
func TestThresholdsChangeWhileTheBreakerIsOpen(t *testing.T) {
	type change struct {
		namespace, deployment string
		after                 time.Duration
		unhealthy             int
		want                  string
	}
	for name, changes := range map[string][]change{
		"looser thresholds of the MachineDeployment apply at once": {
			{"not-ready=4", "", 12 * time.Minute, 4, isOpen}, {"not-ready=4", "not-ready=6", 5 * time.Second, 4, isClosed},
		},
		"looser thresholds of the Namespace apply at once": {
			{"not-ready=4", "", 12 * time.Minute, 4, isOpen}, {"percent=90", "", 5 * time.Second, 4, isClosed},
		},
		"a circuit breaker that never opens is closed at once": {
			{"", "not-ready=4", 12 * time.Minute, 4, isOpen}, {"", "percent=100", 5 * time.Second, 4, isClosed},
		},
		"stricter thresholds apply at once": {
			{"not-ready=6", "", 12 * time.Minute, 4, isClosed}, {"not-ready=4", "", 5 * time.Second, 4, "True TargetNotReady, 1 disruptions"},
		},
		"it stays open between the limits when it would close later": {
			{"not-ready=4", "", 12 * time.Minute, 4, isOpen},
			{"not-ready=4", "", time.Minute, 3, isOpen},
			{"not-ready=4", "close-after=1h", time.Minute, 3, isOpen},
			{"not-ready=4,close-percent=20", "", time.Minute, 3, isOpen},
			{"not-ready=4,try-after=9h", "", time.Minute, 3, isOpen},
		},
		"it stays open for the new time": {
			{"not-ready=4", "", 12 * time.Minute, 4, isOpen},
			{"not-ready=4", "close-after=9m", 5 * time.Second, 1, isOpen},
			{"not-ready=4", "close-after=9m", 8 * time.Minute, 1, isOpen},
			{"not-ready=4", "close-after=9m", 2 * time.Minute, 1, isClosed},
		},
		"an annotation that becomes invalid is ignored": {
			{"not-ready=4", "", 12 * time.Minute, 4, isOpen},
			{"4", "", 5 * time.Second, 4, "False ThresholdsIgnored, 1 disruptions"},
			{"not-ready=4", "", 5 * time.Second, 4, "True TargetNotReady, 1 disruptions"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			withSet(t, func(b *bench, s *v1alpha1.MachineSet) {
				for i, c := range changes {
					b.spaces.annotate("n", c.namespace)
					if c.namespace == "" {
						b.spaces.annotate("other", "")
					}
					b.annotate(c.deployment)
					if i == 0 || c.unhealthy != changes[i-1].unhealthy {
						b.show(s, c.unhealthy, 6, time.Now())
					}
					b.wait(c.after)
					if got := b.state(); got != c.want {
						t.Errorf("after change %d: %s, want %s", i, got, c.want)
					}
				}
			})
		})
	}
}

// A root reports an annotation that is ignored once, as long as it is.
func TestIgnoredThresholdsAreReported(t *testing.T) {
	withSet(t, func(b *bench, s *v1alpha1.MachineSet) {
		b.show(s, 0, 6, time.Now().Add(-time.Hour))
		b.annotate("not-ready=3,percent=60%")
		b.wait(time.Minute)
		want := []v1alpha1.MachineDeploymentCondition{{
			Type: v1alpha1.MachineDeploymentCircuitBreakerOpen, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonThresholdsIgnored,
			Message: "An annotation with thresholds is ignored, and " +
				"not-ready=5,percent=50,close-percent=30,close-after=5m0s,try-after=2h0m0s applies: " +
				"annotation fleet.machine.sapcloud.io/circuit-breaker of the object: expected keys and values like not-ready=3,try-after=1h, " +
				`got "not-ready=3,percent=60%": percent: strconv.Atoi: parsing "60%": invalid syntax`,
		}}
		got := slices.Clone(b.deployment().Status.Conditions)
		for i := range got {
			got[i].LastTransitionTime, got[i].LastUpdateTime = metav1.Time{}, metav1.Time{}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("conditions (-want +got):\n%s", diff)
		}
		b.show(s, 6, 6, time.Now().Add(-time.Hour))
		b.wait(time.Minute)
		if is := b.breaker(); !is.IsTrue() || !strings.HasSuffix(is.Message, ". "+want[0].Message) {
			t.Errorf("while it is open: %+v", is)
		}
		b.annotate("") // another message is no reason for an Event
		b.wait(time.Minute)
		b.show(s, 0, 6, time.Now().Add(-time.Hour))
		b.wait(time.Hour)
		b.annotate("not-ready=3")
		b.wait(time.Minute)
		if got := b.deployment().Status.Conditions; len(got) > 0 {
			t.Errorf("conditions %+v are left", got)
		}
		var reasons []string
		for _, event := range b.events() {
			reasons = append(reasons, strings.Join(strings.Fields(event)[1:3], " "))
		}
		if want := []string{
			"Warning ThresholdsIgnored:", "Warning CircuitBreakerOpen:", "Normal ReplacementResumed:",
		}; !slices.Equal(reasons, want) {
			t.Errorf("Events %q, want %q", reasons, want)
		}
	})
}

// Before the annotations of Namespaces are known, they may be stricter than what is known.
func TestNothingIsDecidedBeforeNamespacesAreKnown(t *testing.T) {
	withSet(t, func(b *bench, s *v1alpha1.MachineSet) {
		b.spaces.mu.Lock()
		b.spaces.known = false
		b.spaces.mu.Unlock()
		b.show(s, 4, 6, time.Now().Add(-time.Hour))
		b.wait(time.Hour)
		if got := b.state(); got != "0 disruptions" {
			t.Errorf("before: %s", got)
		}
		b.spaces.annotate("n", "not-ready=4")
		b.wait(5 * time.Second)
		if got := b.state(); got != isOpen {
			t.Errorf("then: %s, want %s", got, isOpen)
		}
	})
}

// Without the right to read Namespaces the thresholds that were read last apply: deletions are held
// then, and roots report that.
func TestThresholdsWithoutTheRightToReadNamespaces(t *testing.T) {
	withSet(t, func(b *bench, s *v1alpha1.MachineSet) {
		b.spaces.annotate("n", "not-ready=4")
		b.spaces.mu.Lock()
		b.spaces.known = false // so that nothing is decided before the machines are counted
		b.spaces.mu.Unlock()
		b.show(s, 4, 6, time.Now().Add(-time.Hour))
		b.wait(5 * time.Second)
		b.spaces.deny("n")
		b.wait(5 * time.Second)
		if got := b.state(); got != isOpen {
			t.Errorf("%s, want %s", got, isOpen)
		}
	})
}

// A new holder keeps the circuit breaker open with the thresholds of the annotation.
func TestNewHolderKeepsTheBreakerOfAnAnnotationOpen(t *testing.T) {
	d := deployment()
	d.Annotations = map[string]string{v1alpha1.AnnotationCircuitBreaker: "not-ready=4,close-after=20m"}
	machinefacts.SetConditionOfDeployment(&d.Status, v1alpha1.MachineDeploymentCircuitBreakerOpen,
		machinefacts.True(v1alpha1.ReasonTargetNotReady, "as before"), time.Unix(1, 0))
	s := set("s", d, 6)
	during(t, []runtime.Object{d}, func(b *bench) {
		b.Breakers().Receive(nil, []string{"r"})
		b.feed(class())
		b.feed(s)
		b.show(s, 1, 6, time.Now().Add(-time.Hour))
		b.feed(d) // last, as if its slot were opened now
		b.wait(19 * time.Minute)
		if got := b.state(); got != isOpen {
			t.Errorf("after 19 min: %s, want %s", got, isOpen)
		}
		b.wait(2 * time.Minute)
		if got := b.state(); got != isClosed {
			t.Errorf("after 21 min: %s, want %s", got, isClosed)
		}
	})
}

// More thresholds than are compared with the counts: those that are left out report it, and others
// of the namespace apply.
func TestTooManyThresholds(t *testing.T) {
	d := deployment()
	s := set("s", d, 6)
	during(t, []runtime.Object{d}, func(b *bench) {
		b.Breakers().Receive(nil, []string{"r"})
		for i := range disruption.MaxThresholds { // their names come before d
			other := set(fmt.Sprintf("a%d", i), nil, 0)
			other.Annotations = map[string]string{v1alpha1.AnnotationCircuitBreaker: fmt.Sprintf("not-ready=%d", 1000+i)}
			b.feed(other)
		}
		for _, obj := range []any{class(), d, s} {
			b.feed(obj)
		}
		b.show(s, 4, 6, time.Now().Add(-time.Hour))
		b.wait(5 * time.Second)
		b.annotate("not-ready=4")
		b.wait(5 * time.Second)
		if is := b.breaker(); b.state() != "False ThresholdsIgnored, 1 disruptions" ||
			!strings.Contains(is.Message, "more than 64 different thresholds are in use") {
			t.Errorf("%s: %s", b.state(), is.Message)
		}
	})
}

func TestThresholdsInUse(t *testing.T) {
	flags := disruption.DefaultThresholds()
	in := func(namespace, name, text string) metav1.Object {
		s := set(name, nil, 0)
		s.Namespace = namespace
		if text != "" {
			s.Annotations = map[string]string{v1alpha1.AnnotationCircuitBreaker: text}
		}
		return s
	}
	of := func(n int) disruption.Thresholds { t := flags; t.NotReady = n; return t }
	got := thresholds{
		flags: flags, namespaces: &namespaces{known: true, set: map[string]string{"a": "not-ready=7", "b": "x", "e": "not-ready=8"}},
	}.inUse([]metav1.Object{
		in("a", "2", "not-ready=4"), in("a", "1", "not-ready=3"), in("a", "3", "not-ready=3"), in("a", "4", "x"), in("a", "5", "not-ready=2"),
		in("b", "1", "not-ready=4"), in("b", "2", ""), in("c", "1", ""), in("d", "1", "percent=50"), in("e", "1", ""), in("e", "2", ""),
	})
	want := map[string][]disruption.Thresholds{"a": {of(7), of(3), of(4)}, "b": {of(4)}, "e": {of(8)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
