package scale

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/scenario"
)

// bench is a set and its machines, as described by a scenario.
type bench struct {
	*testing.T

	World
}

// newBench reads the facts of a scenario:
//
//	replicas: 3            desired
//	label: freeze=True     on the set
//	chosen-until: 5m       ago: the autoscaler's last change of the replicas, as the set has it
//	preserve-at-most: 1    autoPreserveFailedMachineMax
//	intends: create 1-3 5  recorded ordinals
//	intends: delete a      recorded machines; with ! because they have failed
//	machine: a Running     its name and phase, "-" for none; then any words of report
//	machine: n1-2 Running  machines n1 and n2
//	live: a b              the API server was read, and returned these, or all; a word of report after a colon is
//	                       the state there: "b:priority=1"
//	refused                the API server refuses to create machines; not-deleted: to delete them
//	minReadySeconds: 90    which is applied
//	tidy-later             observed intents may stay recorded for a while
//	isReplaced                  a rollout is replacing all machines
//	held                   deletions are held
//	deleted                the set is being deleted
func newBench(t *testing.T, s scenario.Scenario) *bench {
	t.Helper()
	b := &bench{T: t, World: World{Now: born, Set: &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Name: "s", UID: "s-uid", Finalizers: []string{v1alpha1.FinalizerName},
		Labels: map[string]string{v1alpha1.LabelSlot: "7"}, Annotations: map[string]string{},
	}}}}
	labels := map[string]string{"a": "b"}
	b.Set.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	b.Set.Spec.Template.Labels = labels
	b.Set.Spec.Template.Spec.Class = v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}
	in := machinefacts.Intents{Next: 10}
	for _, fact := range s.Given {
		words := strings.Fields(fact.Value)
		switch fact.Key {
		case "replicas":
			b.Set.Spec.Replicas = int32(b.number(fact.Value))
		case "label":
			key, value, _ := strings.Cut(fact.Value, "=")
			b.Set.Labels[key] = value
		case "chosen-until":
			b.Set.Annotations[v1alpha1.AnnotationLastReplicaChangeByScaler] = b.ago(fact.Value).Format(time.RFC3339)
		case "preserve-at-most":
			b.Set.Spec.AutoPreserveFailedMachineMax = int32(b.number(fact.Value))
		case "intends":
			b.intend(&in, words)
		case "machine":
			b.addMachines(words)
		case "live":
			b.addLive(words)
		case "refused":
			b.Done.CreateError = "no"
		case "not-deleted":
			b.Done.DeleteError = "no"
		case "tidy-later":
			b.KeepObserved = true
		case "fades":
			b.IsReplaced = true
		case "held":
			b.Held = true
		case "deleted":
			now := metav1.NewTime(born)
			b.Set.DeletionTimestamp = &now
		case "minReadySeconds":
			b.CountMinReady, b.Set.Spec.MinReadySeconds = true, int32(b.number(fact.Value))
		default:
			t.Fatalf("line %d: what is %q?", fact.Line, fact.Key)
		}
	}
	if len(in.Create)+len(in.Delete) > 0 {
		in.Write(b.Set)
	}
	return b
}

func (b *bench) number(text string) int {
	b.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// ago is a time: "5m" is five minutes ago, "+5m" in five minutes.
func (b *bench) ago(text string) time.Time {
	b.Helper()
	d, err := time.ParseDuration(strings.TrimPrefix(text, "+"))
	if err != nil {
		b.Fatal(err)
	}
	if strings.HasPrefix(text, "+") {
		return born.Add(d)
	}
	return born.Add(-d)
}

// numbers are those of a range, "1-3", or one.
func (b *bench) numbers(text string) (all []int64) {
	b.Helper()
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	for n := b.number(first); n <= b.number(last); n++ {
		all = append(all, int64(n))
	}
	return all
}

func (b *bench) intend(in *machinefacts.Intents, words []string) {
	b.Helper()
	for _, word := range words[1:] {
		if words[0] == "create" {
			in.Create = append(in.Create, b.numbers(word)...)
			continue
		}
		name := strings.TrimSuffix(word, "!")
		in.Delete = append(in.Delete, machinefacts.Deletion{Name: name, UID: types.UID(name), Failed: name != word})
	}
}

// addMachines adds one machine, or several equal ones: "n1-3" is n1, n2 and n3. A later one is
// younger.
func (b *bench) addMachines(words []string) {
	b.Helper()
	letters := strings.TrimRight(words[0], "0123456789-")
	if numbers := strings.TrimPrefix(words[0], letters); strings.Contains(numbers, "-") {
		for _, n := range b.numbers(numbers) {
			b.addMachines(append([]string{fmt.Sprint(letters, n)}, words[1:]...))
		}
		return
	}
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Name: words[0], UID: types.UID(words[0]), Labels: map[string]string{"a": "b"}, Annotations: map[string]string{},
		CreationTimestamp: metav1.NewTime(born.Add(time.Duration(len(b.Owned)-1000) * time.Minute)),
	}}
	m.Spec.Class = v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}
	m.Status.CurrentStatus.Phase = v1alpha1.MachinePhase(strings.Trim(words[1], "-"))
	for _, word := range words[2:] {
		b.report(m, word)
	}
	b.Owned = append(b.Owned, m)
}

// report sets one property of a machine.
func (b *bench) report(m *v1alpha1.Machine, word string) {
	b.Helper()
	key, value, _ := strings.Cut(word, "=")
	switch key {
	case "born":
		m.CreationTimestamp = metav1.NewTime(b.ago(value))
	case "since":
		m.Status.CurrentStatus.LastUpdateTime = metav1.NewTime(b.ago(value))
	case "priority":
		m.Annotations[v1alpha1.AnnotationPriority] = value
	case "marked":
		m.Annotations[v1alpha1.AnnotationMarkedForDeletionTime] = b.ago(value).Format(time.RFC3339)
	case "mark": // that is no time
		m.Annotations[v1alpha1.AnnotationMarkedForDeletionTime] = value
	case "preserve":
		m.Annotations[v1alpha1.AnnotationPreserve] = value
	case "kept-until":
		m.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: b.ago(value)}
	case "ending":
		m.DeletionTimestamp = &metav1.Time{Time: born}
	case "disruption":
		b.Disruptions = append(b.Disruptions, disruption.Disruption{Name: m.Name, UID: m.UID})
	case "ordinal": // and the name that follows from it
		ordinal := int64(b.number(value))
		m.Name = machinefacts.Name(b.Set.Name, b.Set.UID, ordinal)
		m.Annotations[v1alpha1.AnnotationOrdinal] = value
	case "foreign-ordinal":
		m.Annotations[v1alpha1.AnnotationOrdinal] = value
	case "class":
		m.Spec.Class.Name = value
	case "transferred":
		m.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.UpdateResultSuccessful
	default:
		b.Fatalf("%s: what is %q?", m.UID, word)
	}
}

// addLive adds what the API server shows: the machines of the cache, and others.
func (b *bench) addLive(words []string) {
	b.Helper()
	b.Live = &Live{Owned: map[types.UID]*metav1.ObjectMeta{}, Names: map[string]bool{}}
	if slices.Equal(words, []string{"all"}) {
		words = nil
		for _, m := range b.Owned {
			words = append(words, string(m.UID))
		}
	}
	for _, word := range words {
		name, reported, _ := strings.Cut(word, ":")
		m := &v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{}, Annotations: map[string]string{}},
		}
		if i := slices.IndexFunc(b.Owned, func(m *v1alpha1.Machine) bool { return m.UID == types.UID(name) }); i >= 0 {
			m = b.Owned[i].DeepCopy()
		}
		if reported != "" {
			b.report(m, reported)
		}
		b.Live.Owned[m.UID], b.Live.Names[m.Name] = &m.ObjectMeta, true
	}
}

// TestOrder sorts the machines of testdata/order.txt. The result is the order of their deletion,
// and the rule by which each follows the one before.
func TestOrder(t *testing.T) {
	scenario.Run(t, "testdata/order.txt", func(t *testing.T, s scenario.Scenario) string {
		t.Helper()
		b := newBench(t, s)
		var out strings.Builder
		var before *v1alpha1.Machine
		for _, m := range rank(b.World, b.Owned) {
			fmt.Fprint(&out, m.UID)
			if before != nil {
				fmt.Fprintf(&out, ", by rule %s", decidingRule(b.World, before, m))
			}
			fmt.Fprintln(&out)
			before = m
		}
		return out.String()
	})
}

func decidingRule(w World, a, b *v1alpha1.Machine) string {
	for _, r := range rules() {
		if r.compare(keyOf(w, a), keyOf(w, b)) != 0 {
			return r.name
		}
	}
	return "none"
}

// TestBalance decides on the scenarios in testdata/balance.txt and hold.txt. The result is the
// action and the intents: new ones with a plus, removed or withdrawn ones with a minus.
func TestBalance(t *testing.T) {
	scenario.Run(t, "testdata/[bh]*.txt", func(t *testing.T, s scenario.Scenario) string {
		t.Helper()
		b := newBench(t, s)
		return b.describe(Decide(b.World))
	})
}

func (b *bench) describe(v Verdict) string {
	b.Helper()
	out := []string{string(v.Do)}
	for _, m := range v.Machines {
		text := string(m.UID)
		if v.Do == Update {
			text += " preserve=" + m.Annotations[v1alpha1.AnnotationPreserve]
		}
		out = append(out, text)
	}
	if len(v.Ordinals) > 0 {
		out = append(out, ranges(v.Ordinals))
	}
	lines := []string{strings.Join(out, " ")}
	switch v.Do {
	case Save:
		before, err := machinefacts.ReadIntents(b.Set)
		after, err2 := machinefacts.ReadIntents(v.Set)
		if err != nil || err2 != nil {
			b.Fatal(err, err2)
		}
		lines = append(lines, differ("create", split(before.Create), split(after.Create))...)
		lines = append(lines, differ("delete", names(before.Delete), names(after.Delete))...)
	case Rest:
		if waits := Waits(b.World, v); waits != "" {
			lines = append(lines, "waits for "+waits)
		}
		if v.Set == nil {
			lines[0] += ": the status is not written"
			break
		}
		if v.AllObserved {
			lines = append(lines, "observed intents are still recorded")
		}
		lines[0] += fmt.Sprintf(": %d there, %d ready, %d available",
			v.Set.Status.Replicas, v.Set.Status.ReadyReplicas, v.Set.Status.AvailableReplicas)
		if v.Wake > 0 {
			lines[0] += fmt.Sprintf("; again in %s", v.Wake)
		}
	case ListLive, CheckClass, Adopt, Release, Create, Delete, Update:
	}
	return strings.Join(lines, "\n")
}

func split(ordinals []int64) (texts []string) {
	for _, o := range ordinals {
		texts = append(texts, strconv.FormatInt(o, 10))
	}
	return texts
}

func names(deletions []machinefacts.Deletion) (texts []string) {
	for _, d := range deletions {
		texts = append(texts, d.Name+map[bool]string{true: "!"}[d.Failed])
	}
	return texts
}

// differ returns what was added and what was removed.
func differ(what string, before, after []string) (lines []string) {
	for _, part := range []struct {
		sign    string
		of, not []string
	}{{"+", after, before}, {"-", before, after}} {
		changed := slices.DeleteFunc(slices.Clone(part.of), func(s string) bool { return slices.Contains(part.not, s) })
		if len(changed) > 12 {
			changed = []string{fmt.Sprintf("%s … %s, %d in all", changed[0], changed[len(changed)-1], len(changed))}
		}
		if len(changed) > 0 {
			lines = append(lines, fmt.Sprintf("%s%s %s", part.sign, what, strings.Join(changed, " ")))
		}
	}
	return lines
}

func ranges(ordinals []int64) string {
	if len(ordinals) > 12 {
		return fmt.Sprintf("%d … %d, %d in all", ordinals[0], ordinals[len(ordinals)-1], len(ordinals))
	}
	return strings.Join(split(ordinals), " ")
}
