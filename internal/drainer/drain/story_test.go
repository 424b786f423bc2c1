package drain

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/golden"
)

// born is when the drains of all stories begin.
var born = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// TestStories runs the stories in testdata: lines with facts, and below each "decide" what follows
// from them, indented. README.txt there explains the lines.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if filepath.Base(file) == "README.txt" {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, file, report(t, string(text)))
		})
	}
}

// report returns the text with the verdicts of now.
func report(t *testing.T, text string) string {
	t.Helper()
	var out []string
	s := newStory()
	for i, line := range strings.Split(text, "\n") {
		switch words := strings.Fields(line); {
		case strings.HasPrefix(line, "  "):
			continue // what followed when this was written
		case len(words) == 0 || strings.HasPrefix(line, "#"):
			out = append(out, line)
		case words[0] == "story":
			s, out = newStory(), append(out, line)
		default:
			out = append(out, line)
			said, err := s.take(words[0], words[1:])
			if err != nil {
				t.Fatalf("line %d, %q: %v", i+1, line, err)
			}
			for _, one := range said {
				out = append(out, "  "+one)
			}
		}
	}
	return strings.Join(out, "\n")
}

// story is a drain whose facts change.
type story struct {
	facts   Facts
	last    Verdict
	written int // budgets
}

func newStory() *story {
	s := &story{facts: Facts{
		Now: born,
		Settings: Settings{
			Timeout: 2 * time.Hour, MaxEvictRetries: 360, DetachTimeout: 2 * time.Minute, ReattachTimeout: 90 * time.Second, VolumeParallelism: 4,
			SeveralBudgets: true,
		},
		Order: Order{Since: born, Timeout: 2 * time.Hour, EvictTime: 2 * time.Hour},
		Node:  &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Unschedulable: true}},
		Sight: Watched,
		Volumes: Volumes{
			Claims: map[types.NamespacedName]*corev1.PersistentVolumeClaim{}, PVs: map[string]*corev1.PersistentVolume{},
			CSIDrivers: map[string]*storagev1.CSIDriver{"disks": {ObjectMeta: metav1.ObjectMeta{Name: "disks"}}}, IDs: map[string]string{},
		},
		FreeDetaches: MaxDetaches,
	}}
	s.facts.Node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return s
}

// options are the words after a command: name=value, or name alone.
type options map[string]string

func (o options) has(name string) bool { _, ok := o[name]; return ok }

func (o options) number(name string) int32 {
	n, err := strconv.ParseInt(o[name], 10, 32)
	if err != nil && o[name] != "" {
		panic(err)
	}
	return int32(n)
}

// when is a time after the drain began.
func (o options) when(name string) metav1.Time {
	d, err := time.ParseDuration(o[name])
	if err != nil {
		panic(fmt.Sprintf("%s=%s: %v", name, o[name], err))
	}
	return metav1.NewTime(born.Add(d))
}

func (s *story) take(command string, words []string) ([]string, error) {
	o := options{}
	name := ""
	for i, word := range words {
		key, value, _ := strings.Cut(word, "=")
		if i == 0 && !strings.Contains(word, "=") {
			name = word
		}
		o[key] = value
	}
	commands := map[string]func(string, options){
		"order": s.order, "node": s.node, "pod": s.pod, "gone": s.gone, "budget": s.budget, "counted": s.counted, "volume": s.volume,
		"attached": s.attached, "detached": s.detached, "memory": s.forget, "see": s.see,
	}
	switch {
	case command == "at":
		s.facts.Now, s.facts.Live = born.Add(mustDuration(name)), false
	case command == "decide":
		return s.decide(), nil
	case command == "do":
		s.do(o)
	case commands[command] != nil:
		commands[command](name, o)
	default:
		return nil, errors.New("no such command; see testdata/README.txt")
	}
	return nil, nil
}

func mustDuration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

func (s *story) order(_ string, o options) {
	s.facts.Order.Force, s.facts.Order.Stays, s.facts.Order.IsShut = o.has("force"), o.has("stays"), o.has("shut")
	if o.has("one-budget") {
		s.facts.Settings.SeveralBudgets = false
	}
	if o.has("timeout") {
		s.facts.Order.Timeout = mustDuration(o["timeout"])
	}
	if o.has("retries") {
		s.facts.Order.EvictTime = time.Duration(o.number("retries")) * evictAgain
	}
	if o.has("detach") {
		s.facts.Settings.DetachTimeout = mustDuration(o["detach"])
	}
	if o.has("reattach") {
		s.facts.Settings.ReattachTimeout = mustDuration(o["reattach"])
	}
	if o.has("parallel") {
		s.facts.Settings.VolumeParallelism = int(o.number("parallel"))
	}
}

func (s *story) node(_ string, o options) {
	n := s.facts.Node
	if o.has("schedulable") {
		n.Spec.Unschedulable = o["schedulable"] != "true"
	}
	if o.has("deleted") {
		n.DeletionTimestamp = &metav1.Time{Time: s.facts.Now}
	}
	if o.has("notready") {
		n.Status.Conditions[0] = corev1.NodeCondition{
			Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: o.when("notready"),
		}
	}
	if o.has("ready") {
		n.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: o.when("ready")}
	}
	if o.has("readonly") {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: conditionReadonly, Status: corev1.ConditionTrue, LastTransitionTime: o.when("readonly"),
		})
	}
	if o.has("attached") {
		n.Status.VolumesAttached = nil
		for name := range strings.SplitSeq(o["attached"], ",") {
			if name != "" {
				n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: corev1.UniqueVolumeName(name)})
			}
		}
	}
}

func (s *story) find(name string) *corev1.Pod {
	for _, p := range s.facts.Pods {
		if p.Name == name {
			return p
		}
	}
	return nil
}

func (s *story) pod(name string, o options) {
	p := s.find(name)
	if p == nil {
		p = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: types.UID(name)}}
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		s.facts.Pods = append(s.facts.Pods, p)
	}
	for key, value := range o {
		s.change(p, key, value, o)
	}
}

func (s *story) change(p *corev1.Pod, key, value string, o options) {
	switch key {
	case "app":
		p.Labels = map[string]string{"app": value}
	case "priority":
		p.Spec.Priority = new(o.number("priority"))
	case "owner":
		p.OwnerReferences = []metav1.OwnerReference{{Kind: value, Name: "x", Controller: new(true)}}
	case "mirror":
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	case "unready":
		p.Status.Conditions[0].Status = corev1.ConditionFalse
	case "created":
		p.CreationTimestamp = o.when("created")
	case "phase":
		p.Status.Phase = corev1.PodPhase(value)
	case "inline":
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
			Name: "inline", VolumeSource: corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{}},
		})
	case "ending":
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: s.facts.Now}, new(int64(30))
	case "grace":
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: s.facts.Now.Add(mustDuration(value))},
			new(int64(mustDuration(value).Seconds()))
	case "volumes", "ephemeral":
		for name := range strings.SplitSeq(value, ",") {
			s.claim(p, name, key == "ephemeral")
		}
	}
}

// claim has the pod use a volume, by a claim of the same name.
func (s *story) claim(p *corev1.Pod, name string, ephemeral bool) {
	v := corev1.Volume{Name: name}
	claim := name
	if ephemeral {
		v.Ephemeral, claim = &corev1.EphemeralVolumeSource{}, p.Name+"-"+name
	} else {
		v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}
	}
	p.Spec.Volumes = append(p.Spec.Volumes, v)
	key := types.NamespacedName{Namespace: "a", Name: claim}
	s.facts.Volumes.Claims[key] = &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: name}}
	if s.facts.Volumes.PVs[name] == nil {
		s.volume(name, options{"driver": "disks"})
	}
}

func (s *story) volume(name string, o options) {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	switch driver := o["driver"]; driver {
	case "nfs":
		pv.Spec.NFS = &corev1.NFSVolumeSource{}
	case "iscsi":
		pv.Spec.ISCSI = &corev1.ISCSIPersistentVolumeSource{}
	default:
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "handle-of-" + name}
	}
	if o.has("mounted-only") {
		s.facts.Volumes.CSIDrivers[o["driver"]] = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: new(false)}}
	}
	if o.has("id") {
		s.facts.Volumes.IDs[name] = o["id"]
	}
	s.facts.Volumes.PVs[name] = pv
}

func (s *story) gone(name string, _ options) {
	var left []*corev1.Pod
	for _, p := range s.facts.Pods {
		if p.Name != name {
			left = append(left, p)
		}
	}
	s.facts.Pods = left
}

func (s *story) budget(name string, o options) {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", Generation: 1}}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": o["app"]}}
	b.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: 1, DisruptionsAllowed: o.number("allowed"), CurrentHealthy: o.number("healthy"),
		DesiredHealthy: o.number("desired"), ExpectedPods: o.number("expected"),
	}
	if o.has("stale") {
		b.Generation = 2
	}
	if o.has("unavailable") {
		b.Spec.MaxUnavailable = new(intstr.FromInt32(o.number("unavailable")))
	}
	if o.has("available") {
		b.Spec.MinAvailable = new(intstr.Parse(o["available"]))
	}
	if o.has("taken") {
		b.Status.DisruptedPods = map[string]metav1.Time{o["taken"]: metav1.NewTime(s.facts.Now)}
	}
	if o.has("always") {
		b.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
	}
	s.written++
	b.UID, b.ResourceVersion = types.UID(name), fmt.Sprint(s.written)
	for i, old := range s.facts.Budgets {
		if old.Name == name {
			s.facts.Budgets[i] = b
			return
		}
	}
	s.facts.Budgets = append(s.facts.Budgets, b)
}

// counted has the disruption controller count all budgets that are marked; what they say has not
// changed.
func (s *story) counted(string, options) {
	for _, b := range s.facts.Budgets {
		if isStale(b) {
			s.write(b.Name, func(b *policyv1.PodDisruptionBudget) { b.Status.ObservedGeneration = b.Generation })
		}
	}
}

// write creates a new version of a budget.
func (s *story) write(name string, change func(*policyv1.PodDisruptionBudget)) {
	for i, b := range s.facts.Budgets {
		if b.Name == name {
			s.written++
			b = b.DeepCopy()
			b.ResourceVersion = fmt.Sprint(s.written)
			change(b)
			s.facts.Budgets[i] = b
		}
	}
}

func (s *story) attached(name string, o options) {
	node := "n"
	if o.has("node") {
		node = o["node"]
	}
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: node + "-" + name, UID: types.UID(node + "/" + name)}}
	a.Spec = storagev1.VolumeAttachmentSpec{NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}}
	a.Status.Attached = true
	if o.has("inline") {
		a.Spec.Source.PersistentVolumeName = nil
		name = attachmentKey(a)
	}
	if o.has("ending") {
		a.DeletionTimestamp = &metav1.Time{Time: s.facts.Now}
	}
	s.detached(name, o)
	s.facts.Volumes.Attachments = append(s.facts.Volumes.Attachments, a)
}

func (s *story) detached(name string, o options) {
	node := "n"
	if o.has("node") {
		node = o["node"]
	}
	var left []*storagev1.VolumeAttachment
	for _, a := range s.facts.Volumes.Attachments {
		if a.Spec.NodeName != node || attachmentKey(a) != name {
			left = append(left, a)
		}
	}
	s.facts.Volumes.Attachments = left
}

func (s *story) forget(string, options) { s.facts.Memory = Memory{} }

func (s *story) see(name string, o options) {
	if o.has("live") {
		s.facts.Live = true
	}
	s.facts.Blind = o["blind"]
	if o.has("free") {
		s.facts.FreeDetaches = int(o.number("free"))
	}
	for sight, text := range map[Sight]string{Unseen: "nothing", Listed: "pods", Awaited: "pods-and-wait", Watched: "all"} {
		if name == text {
			s.facts.Sight = sight
		}
	}
}
