package model_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/page/model"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/page/pagetest"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/golden"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func encode(t *testing.T, in model.Input) model.Encoded {
	t.Helper()
	e, err := model.Of(in).Encode()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestState compares what is sent about a small fleet in which everything happens at once: of each
// list the first rows.
func TestState(t *testing.T) {
	in := pagetest.NewWorld(90, now).Read()
	text, err := json.Marshal(encode(t, in).Whole())
	if err != nil {
		t.Fatal(err)
	}
	var whole map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&whole); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	addLines(&lines, "", whole)
	golden.Compare(t, "testdata/state.txt", lines.String())
}

// addLines adds a value as lines: a field, or one of the first elements of a list, each.
func addLines(lines *strings.Builder, path string, value any) {
	const most = 6
	object, isObject := value.(map[string]any)
	list, isList := value.([]any)
	switch {
	case isObject:
		for _, key := range slices.Sorted(maps.Keys(object)) {
			addLines(lines, strings.TrimPrefix(path+"."+key, "."), object[key])
		}
	case isList:
		fmt.Fprintf(lines, "%s: %d\n", path, len(list))
		for _, element := range list[:min(len(list), most)] {
			text, _ := json.Marshal(element) // it was decoded
			fmt.Fprintf(lines, "  %s\n", text)
		}
	default:
		fmt.Fprintf(lines, "%s: %v\n", path, value)
	}
}

// TestWhatWasNotReadYetIsNotAbsent: nothing is reported until all objects were read, or cannot be.
func TestWhatWasNotReadYetIsNotAbsent(t *testing.T) {
	in := pagetest.NewWorld(50, now).Read()
	in.Loaded, in.Leases = false, nil
	if s := model.Of(in); !s.About.Loading || s.Troubles.All+s.Counts.Errors+len(s.Tiles)+s.Deletions.All > 0 {
		t.Errorf("got %+v", s)
	}
	in.Loaded = true
	in.Missing = []view.Missing{{What: view.MissingLeases, Why: "forbidden"}}
	for _, trouble := range model.Of(in).Troubles.Rows {
		if trouble.Reason == "NoLeader" {
			t.Errorf("got %+v", trouble)
		}
	}
}

// client has what a viewer has after messages, as the page applies them.
type client struct {
	sections map[string]string
	tiles    map[string]model.Tile
}

func (c *client) apply(m model.Message) {
	if m.Whole || c.tiles == nil {
		c.sections, c.tiles = map[string]string{}, map[string]model.Tile{}
	}
	for name, section := range m.Sections {
		c.sections[name] = string(section)
	}
	for _, g := range m.Machines {
		key := g.Namespace + "/" + g.Pool + "/"
		for _, name := range g.Gone {
			delete(c.tiles, key+name)
		}
		for _, tile := range g.Tiles {
			c.tiles[key+tile.Name] = tile
		}
	}
}

// TestChangesLeadToTheSameState: a viewer that gets each change, one that misses some, and one that
// begins later have the same.
func TestChangesLeadToTheSameState(t *testing.T) {
	world := pagetest.NewWorld(400, now)
	before := encode(t, world.Read())
	var each, some client
	each.apply(before.Whole())
	some.apply(before.Whole())
	seen := before
	for i := range 12 {
		world.Step(i, 7, now.Add(time.Duration(i)*time.Second))
		world.Change(func(in *model.Input) {
			in.Machines = in.Machines[1:]
			moved := in.Machines[30+i].DeepCopy()
			moved.OwnerReferences = nil
			in.Machines = append([]*v1alpha1.Machine{moved}, append(in.Machines[:30+i:30+i], in.Machines[31+i:]...)...)
		})
		after := encode(t, world.Read())
		each.apply(model.Change(before, after))
		if i%5 == 4 {
			some.apply(model.Change(seen, after))
			seen = after
		}
		before = after
	}
	some.apply(model.Change(seen, before))
	var late client
	late.apply(before.Whole())
	if len(late.tiles) != 388 {
		t.Errorf("%d tiles, want 388", len(late.tiles))
	}
	for name, other := range map[string]client{"each change": each, "some changes": some} {
		if diff := cmp.Diff(late, other, cmp.AllowUnexported(client{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestNothingHasChanged: an equal state has no message, also when the time has gone on.
func TestNothingHasChanged(t *testing.T) {
	in := pagetest.NewWorld(100, now).Read()
	before := encode(t, in)
	in.Now = now.Add(2 * time.Second)
	for _, l := range in.Leases {
		at := metav1.NewMicroTime(l.Spec.RenewTime.Add(2 * time.Second))
		l.Spec.RenewTime = &at
	}
	if m := model.Change(before, encode(t, in)); !m.IsEmpty() {
		text, _ := json.Marshal(m)
		t.Errorf("got %s", text)
	}
}

// TestStateIsBounded: of very many objects with very long texts only a part is shown, and all are
// counted.
func TestStateIsBounded(t *testing.T) {
	const machines = model.MostTiles + 500
	in := pagetest.NewWorld(machines, now).Read()
	long := strings.Repeat("x", 100_000)
	for i, m := range in.Machines {
		if i%2 == 0 {
			m.Status.CurrentStatus.Phase = v1alpha1.MachineFailed
			m.Status.LastOperation.Description = long
		}
	}
	for i := range 3000 {
		d := in.Deployments[0].DeepCopy()
		d.Name, d.UID = fmt.Sprintf("%s-%d", d.Name, i), ""
		in.Deployments = append(in.Deployments, d)
	}
	for i := range 3 * model.MostUnread {
		in.Unread = append(in.Unread, fmt.Sprint(i, long))
	}
	replicas := 0
	for _, l := range slices.Clone(in.Leases) {
		if l.Labels[v1alpha1.LabelLease] != v1alpha1.LeaseOfSession {
			continue
		}
		replicas += 500
		for i := range 499 { // replicas that have left, before those that live in the order of names
			left := l.DeepCopy()
			left.Name, left.Spec.HolderIdentity = fmt.Sprintf("fleet-session-a-%s-%d", l.Name, i), nil
			in.Leases = append(in.Leases, left)
		}
	}
	s := model.Of(in)
	unread := s.About.Unread
	if text := unread[0]; len(unread) != model.MostUnread+1 || unread[model.MostUnread] != "and 40 more" || len(text) > 600 {
		t.Errorf("%d texts about what was not read, the first of %d bytes, the last %q", len(unread), len(text), unread[len(unread)-1])
	}
	f := s.Fleet
	lives := func(r model.Replica) bool { return r.State == "Leads" || r.State == "Lives" }
	if len(f.Replicas) != model.MostReplicas || f.All != replicas || !slices.ContainsFunc(f.Replicas, lives) ||
		f.Replicas[f.Slots[0].Holder].Name != "fleet-0" {
		t.Errorf("%d of %d replicas, slot 0 is of number %d", len(f.Replicas), f.All, f.Slots[0].Holder)
	}
	if s.Counts.Machines != machines || s.Counts.Tiles != model.MostTiles || len(s.Tiles) != model.MostTiles {
		t.Errorf("%d machines, %d tiles counted, %d tiles", s.Counts.Machines, s.Counts.Tiles, len(s.Tiles))
	}
	if len(s.Rollouts.Rows) != model.MostRows || s.Rollouts.All < 3000 {
		t.Errorf("%d rollouts of %d", len(s.Rollouts.Rows), s.Rollouts.All)
	}
	e, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(e.Whole())
	if err != nil || len(text) > 5<<20 {
		t.Errorf("%d bytes; %v", len(text), err)
	}
}

// TestTextsThatNobodyChecksAreBounded: those of owners and phases, which are different for each
// machine, and six times as long as JSON.
func TestTextsThatNobodyChecksAreBounded(t *testing.T) {
	in := pagetest.NewWorld(model.MostTiles, now).Read()
	long := strings.Repeat("\x01", 2000)
	for i, m := range in.Machines {
		own := fmt.Sprint(i, long)
		m.OwnerReferences[0].UID, m.OwnerReferences[0].Name = "unknown", own
		m.Status.CurrentStatus.Phase, m.Status.LastOperation.Description = v1alpha1.MachinePhase(own), own
	}
	s := model.Of(in)
	if s.Counts.Machines != model.MostTiles || s.Counts.Tiles != len(s.Tiles) || len(s.Tiles) < 1000 || len(s.Tiles) == model.MostTiles {
		t.Errorf("%d machines, %d tiles counted, %d tiles", s.Counts.Machines, s.Counts.Tiles, len(s.Tiles))
	}
	if tile := s.Tiles[0]; len(tile.Pool) > 253 || len(tile.Phase) > 253 {
		t.Errorf("a pool of %d bytes, a phase of %d", len(tile.Pool), len(tile.Phase))
	}
	e, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := json.Marshal(e.Whole()); err != nil || len(text) > 16<<20 {
		t.Errorf("%d bytes; %v", len(text), err)
	}
}

// TestAbsurdNumbersAreEncoded: a Lease has any text.
func TestAbsurdNumbersAreEncoded(t *testing.T) {
	in := pagetest.NewWorld(1, now).Read()
	for i, l := range in.Leases {
		l.Annotations[v1alpha1.AnnotationCapacity] = fmt.Sprint([]float64{math.NaN(), math.Inf(1), math.Inf(-1)}[i%3])
		l.Annotations[v1alpha1.AnnotationWeight] = "9223372036854775807"
	}
	encode(t, in)
}

func BenchmarkState10000(b *testing.B) {
	in := pagetest.NewWorld(10_000, now).Read()
	before, _ := model.Of(in).Encode()
	b.ReportAllocs()
	for b.Loop() {
		after, err := model.Of(in).Encode()
		if err != nil {
			b.Fatal(err)
		}
		if m := model.Change(before, after); !m.IsEmpty() {
			b.Fatal("it has changed")
		}
	}
}

func BenchmarkWhole10000(b *testing.B) {
	e, _ := model.Of(pagetest.NewWorld(10_000, now).Read()).Encode()
	for b.Loop() {
		text, _ := json.Marshal(e.Whole())
		b.ReportMetric(float64(len(text)), "bytes/viewer")
	}
}
