package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/scenario"
)

// TestStories has in testdata what a pass does.
//
//	deployment: words                 replicas=3 surge=1 unavailable=0 template=b strategy=RollingUpdate revision=, autoscaler=true;
//	                                  paused, rollback=, deadline=, history=, minready= (which counts), manual, selecting= (a machine
//	                                  whose Node is about to be selected), notarget (there is no target cluster),
//	                                  notaint (updated Nodes get no taint critical-components-not-ready)
//	progressing: True/Reason 5s       the condition, and how old it is; half a minute if it is not given
//	set: a size=3 words phases        of template a: for= how many replicas it was sized, the deployment's if it is not given,
//	                                  revision=, kept and tainted (marks), by= (the set that replaces its machines), frozen, refused= (why it cannot create or delete
//	                                  machines), uncreatable (a VM of it could not be created), coming= (the ordinal of a machine that it is about to create), deleting= (machines that it is about
//	                                  to delete: a-0,a-1), invalid, held (its deletions are), closed (it must not create machines while they are updated in place), ending (it is being deleted); and its machines, Running:20s where it matters for how long,
//	                                  Running/selected where they have Nodes (see stories_inplace_test.go)
//	left: 1                           machines of old sets that the API server has
//	named: a-0~5m b-1                 machines that the autoscaler names, and how long ago; changed: 5m is when it changed the replicas.
//	                                  A set has heard=5m; a machine is marked, Running@5m, without the priority, Running@5m-, or has only that, Running!
//	unseen: a-3                       a machine that the cache does not show; vanished: a-0 one that only the cache shows
//
// The status of the deployment is that of its sets, which are right. The verdict is each action
// with what it writes, then the conditions that have changed, and when to look again.
func TestStories(t *testing.T) {
	scenario.Run(t, "testdata/stories*.txt", func(t *testing.T, s scenario.Scenario) string {
		t.Helper()
		st := newStory(t)
		for _, fact := range s.Given {
			words := strings.Fields(fact.Value)
			switch fact.Key {
			case "deployment":
				st.deployment(words)
			case "progressing":
				st.progressing(words)
			case "set":
				st.set(words)
			case "left":
				st.left = words
			case "named", "changed":
				st.name(fact.Key, fact.Value)
			case "unseen":
				st.unseen = words
			case "vanished":
				st.vanished = words
			default:
				t.Fatalf("line %d: what is %q?", fact.Line, fact.Key)
			}
		}
		return st.play()
	})
}

// story is one scenario.
type story struct {
	*testing.T

	w                World
	left             []string // machines that only the API server has
	unseen, vanished []string
	reported         []string
	orchestration    v1alpha1.OrchestrationType
}

func newStory(t *testing.T) *story {
	t.Helper()
	d := deployment(3)
	d.Spec.Template.Labels = map[string]string{v1alpha1.LabelName: "d"}
	d.Spec.Template.Annotations = map[string]string{"template": "b"}
	one, none := intstr.FromInt32(1), intstr.FromInt32(0)
	d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
		Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
		RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{
			UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: &one, MaxUnavailable: &none},
		},
	}
	st := &story{T: t, w: worldOf(d), orchestration: v1alpha1.OrchestrationTypeAuto}
	st.w.Nodes = map[string]*corev1.Node{}
	return st
}

func (s *story) deployment(words []string) {
	s.Helper()
	d := s.w.Deployment
	limits := &d.Spec.Strategy.RollingUpdate.UpdateConfiguration
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		n, _ := strconv.ParseInt(value, 10, 32)
		short := int32(n)
		limit := intstr.FromInt32(short)
		switch key {
		case "replicas":
			d.Spec.Replicas = short
		case "surge":
			limits.MaxSurge = &limit
		case "unavailable":
			limits.MaxUnavailable = &limit
		case "template":
			d.Spec.Template.Annotations["template"] = value
		case "strategy":
			d.Spec.Strategy.Type = v1alpha1.MachineDeploymentStrategyType(value)
		case "revision":
			d.Annotations[v1alpha1.AnnotationRevision] = value
		case "paused":
			d.Spec.Paused = true
		case "rollback":
			d.Spec.RollbackTo = &v1alpha1.RollbackConfig{Revision: n}
		case "deadline":
			d.Spec.ProgressDeadlineSeconds = &short
		case "minready":
			d.Spec.MinReadySeconds, s.w.CountMinReady = short, true
		case "history":
			d.Spec.RevisionHistoryLimit = &short
		case "autoscaler":
			s.w.KeepFromAutoscaler = value == "true"
		default:
			s.ofInPlace(key, value)
		}
	}
	if IsInPlace(d) {
		d.Spec.Strategy.InPlaceUpdate = &v1alpha1.InPlaceUpdateMachineDeployment{UpdateConfiguration: *limits, OrchestrationType: s.orchestration}
	}
}

func (s *story) progressing(words []string) {
	s.Helper()
	status, reason, _ := strings.Cut(words[0], "/")
	age := time.Minute / 2
	if len(words) > 1 {
		var err error
		if age, err = time.ParseDuration(words[1]); err != nil {
			s.Fatal(err)
		}
	}
	at := metav1.NewTime(born.Add(-age))
	s.w.Deployment.Status.Conditions = []v1alpha1.MachineDeploymentCondition{{
		Type: v1alpha1.MachineDeploymentProgressing, Status: corev1.ConditionStatus(status), Reason: reason, LastUpdateTime: at,
		LastTransitionTime: at,
	}}
	s.w.Deployment.Status.ObservedGeneration = s.w.Deployment.Generation
}

// set adds a set; their order is that of their age.
func (s *story) set(words []string) {
	s.Helper()
	d := s.w.Deployment.DeepCopy()
	d.Spec.Template.Annotations = map[string]string{"template": words[0]}
	set := newMachineSet(d)
	set.Name, set.UID = "d-"+words[0], types.UID(words[0])
	set.CreationTimestamp = metav1.NewTime(born.Add(time.Duration(len(s.w.Owned)-100) * time.Minute))
	set.Annotations = map[string]string{v1alpha1.AnnotationRevision: "1", "mine": "yes"}
	set.Spec.MinReadySeconds = d.Spec.MinReadySeconds
	sizedFor := int(d.Spec.Replicas)
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "size":
			set.Spec.Replicas = int32(n)
		case "for":
			sizedFor = n
		case "revision":
			set.Annotations[v1alpha1.AnnotationRevision] = value
		case "kept":
			set.Annotations[v1alpha1.AnnotationRolling] = v1alpha1.RollingTrue
		case "by":
			set.Annotations[v1alpha1.AnnotationReplacedBy] = value
		case "tainted":
			set.Annotations[v1alpha1.AnnotationPreferNoSchedule] = v1alpha1.PreferNoScheduleTrue
		case "coming":
			set.Annotations[v1alpha1.AnnotationIntents] = fmt.Sprintf(`{"set":%q,"next":9,"create":[%d]}`, set.UID, n)
		case "deleting":
			var deleting []string
			for name := range strings.SplitSeq(value, ",") {
				deleting = append(deleting, fmt.Sprintf(`{"name":%q,"uid":%q}`, name, name))
			}
			set.Annotations[v1alpha1.AnnotationIntents] = fmt.Sprintf(`{"set":%q,"next":9,"delete":[%s]}`, set.UID, strings.Join(deleting, ","))
		case "refused":
			set.Status.Conditions = []v1alpha1.MachineSetCondition{{
				Type: v1alpha1.MachineSetReplicaFailure, Status: corev1.ConditionTrue, Reason: value, Message: "a webhook says no",
			}}
		case "uncreatable":
			set.Status.Conditions = []v1alpha1.MachineSetCondition{{
				Type: v1alpha1.MachineSetMachineCreateFailure, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonMachineCreateFailed,
				Message: "Machine m: ResourceExhausted: no quota",
			}}
		case "invalid":
			set.Status.Conditions = []v1alpha1.MachineSetCondition{{
				Type: v1alpha1.MachineSetValid, Status: corev1.ConditionFalse, Reason: cmp.Or(value, v1alpha1.ReasonInvalidSpec),
				Message: "its intents cannot be read",
			}}
		case "held":
			set.Status.Conditions = []v1alpha1.MachineSetCondition{{
				Type: v1alpha1.MachineSetDeletionsHeld, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonHoldAnnotation,
				Message: "Deletions are held by a person",
			}}
		case "heard":
			metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationLastReplicaChangeByScaler, s.ago(value))
		case "frozen":
			set.Labels[v1alpha1.LabelFreeze] = "True"
		case "ending":
			set.DeletionTimestamp, set.Finalizers = &metav1.Time{Time: born}, []string{v1alpha1.FinalizerName}
		case "closed":
			set.Labels[v1alpha1.LabelScaleUpDisabled] = "true"
		default:
			s.machine(set, word)
		}
	}
	if set.Spec.Replicas > 0 {
		sized := &sets{limits: limitsOf(d)}
		sized.replicas = int32(sizedFor)
		setChanges{&sizing{sets: sized}}.noteScale(set)
	}
	s.w.Owned = append(s.w.Owned, set)
}

func (s *story) machine(set *v1alpha1.MachineSet, phase string) {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", set.UID, len(s.w.Machines[set.UID]))}}
	phase, node, hasNode := strings.Cut(phase, "/")
	if hasNode {
		s.node(set, m, node)
	}
	phase, mark, marked := strings.Cut(phase, "@")
	mark, without := strings.CutSuffix(mark, "-")
	if marked {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationMarkedForDeletionTime, s.ago(mark))
	}
	phase, withoutTime := strings.CutSuffix(phase, "!")
	if marked && !without || withoutTime {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationPriority, v1alpha1.PriorityTriggered)
	}
	phase, age, _ := strings.Cut(phase, ":")
	m.Status.CurrentStatus.Phase = v1alpha1.MachinePhase(phase)
	if since, err := time.ParseDuration(age); err == nil {
		m.Status.CurrentStatus.LastUpdateTime = metav1.NewTime(born.Add(-since))
	}
	now := metav1.NewTime(born)
	set.Status.Replicas++
	switch phase {
	case "Running":
		set.Status.ReadyReplicas++
		set.Status.AvailableReplicas++
	case "Terminating":
		m.DeletionTimestamp = &now
	case "Preserved":
		m.Status.CurrentStatus = v1alpha1.CurrentStatus{
			Phase: v1alpha1.MachineFailed, PreserveExpiryTime: &metav1.Time{Time: born.Add(time.Hour)},
		}
		set.Status.PreservedFailedReplicas++
	case "Expired":
		m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachineFailed, PreserveExpiryTime: &now}
	case "Kept":
		m.Status.CurrentStatus.Phase = v1alpha1.MachineFailed
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationPreserve, v1alpha1.PreserveWhenFailed)
	case "CreateFailed":
		m.Status.CurrentStatus.Phase = v1alpha1.MachineCrashLoopBackOff
		m.Status.LastOperation = v1alpha1.LastOperation{
			Type: v1alpha1.MachineOperationCreate, State: v1alpha1.MachineStateFailed, ErrorCode: "ResourceExhausted", Description: "no quota",
		}
	}
	s.w.Machines[set.UID] = append(s.w.Machines[set.UID], m)
}

// play carries out what is decided, until the pass rests.
func (s *story) play() string {
	s.Helper()
	status := &s.w.Deployment.Status
	for _, set := range s.w.Owned {
		status.Replicas += set.Status.Replicas
		status.ReadyReplicas += set.Status.ReadyReplicas
		status.AvailableReplicas += set.Status.AvailableReplicas
		status.PreservedFailedReplicas += set.Status.PreservedFailedReplicas
		if set.Annotations[v1alpha1.AnnotationRevision] == s.w.Deployment.Annotations[v1alpha1.AnnotationRevision] {
			status.UpdatedReplicas = set.Status.Replicas
		}
	}
	for range 20 {
		v := Decide(s.w)
		s.do(v)
		for _, e := range v.Events {
			if e.Reason != v1alpha1.EventScalingMachineSet {
				s.report("  Event %s: %s", e.Reason, e.Message)
			}
		}
		if v.Do == Rest {
			s.rest(v)
			return strings.Join(s.reported, "\n")
		}
	}
	return strings.Join(append(s.reported, "and no end"), "\n")
}

func (s *story) report(format string, args ...any) {
	s.reported = append(s.reported, fmt.Sprintf(format, args...))
}

func (s *story) do(v Verdict) {
	s.Helper()
	switch v.Do {
	case Rest:
	case Save:
		was, is := s.w.Deployment, v.Deployment
		s.report("save: revision %s, template %s", is.Annotations[v1alpha1.AnnotationRevision], is.Spec.Template.Annotations["template"])
		s.reportNames(was, is)
		if before, after := selectingOf(was), selectingOf(is); before != after {
			s.report("  selecting %s, and before %s", after, before)
		}
		if was.Spec.RollbackTo != nil && is.Spec.RollbackTo == nil {
			s.report("  it is not to be rolled back any more")
		}
		s.w.Deployment = is.DeepCopy()
	case ListSets:
		s.report("list the sets")
		s.w.LiveSets = map[types.UID]bool{}
		for _, set := range s.w.Owned {
			s.w.LiveSets[set.UID] = true
		}
	case ReadLive:
		s.report("read the deployment and its machines")
		s.readLive()
	case Mark:
		for _, m := range v.Machines {
			s.mark(m)
		}
	case Create:
		set := v.Sets[0].DeepCopy()
		set.UID = types.UID(set.Spec.Template.Annotations["template"])
		set.CreationTimestamp = metav1.NewTime(born)
		s.report("create %s", describe(&v1alpha1.MachineSet{}, set))
		s.w.Owned = append(s.w.Owned, set)
	case Update:
		for _, set := range v.Sets {
			i := slices.IndexFunc(s.w.Owned, func(o *v1alpha1.MachineSet) bool { return o.UID == set.UID })
			s.report("update %s", describe(s.w.Owned[i], set))
			if s.w.Owned[i].Spec.Replicas != set.Spec.Replicas {
				set.Generation++
			}
			s.w.Wrote(set)
		}
	case Delete:
		for _, set := range v.Sets {
			s.report("delete %s", set.UID)
			s.w.Done.Deleted[set.UID] = true
		}
	case WriteNodes, WriteMachines:
		s.doInPlace(v)
	case Adopt, Release:
		s.Fatalf("unexpected %s", v.Do)
	}
}

// describe says what is another about a set.
func describe(was, is *v1alpha1.MachineSet) string {
	words := []string{string(is.UID)}
	if was.Spec.Replicas != is.Spec.Replicas || was.UID == "" {
		words = append(words, fmt.Sprintf("size=%d", is.Spec.Replicas))
	}
	short := map[string]string{
		v1alpha1.AnnotationRolling: "kept", v1alpha1.AnnotationPreferNoSchedule: "tainted", v1alpha1.AnnotationRevision: "revision",
		v1alpha1.AnnotationDesiredReplicas: "for", v1alpha1.AnnotationMaxReplicas: "max", v1alpha1.AnnotationRevisionHistory: "was",
		"mine": "mine",
		v1alpha1.AnnotationLastReplicaChangeByScaler: "heard", v1alpha1.AnnotationReplacedBy: "by",
	}
	for _, key := range slices.Sorted(maps.Keys(short)) {
		before, had := was.Annotations[key]
		now, has := is.Annotations[key]
		if short[key] == "heard" {
			before, now = sinceBorn(before), sinceBorn(now)
		}
		switch {
		case has && before != now:
			words = append(words, short[key]+"="+now)
		case had && !has:
			words = append(words, "-"+short[key])
		}
	}
	if isClosed(was) != isClosed(is) {
		words = append(words, map[bool]string{true: "closed", false: "-closed"}[isClosed(is)])
	}
	return strings.Join(words, " ")
}

func (s *story) rest(v Verdict) {
	if v.Deployment == nil {
		s.report("rest")
		return
	}
	s.report("rest")
	s.reportNames(s.w.Deployment, v.Deployment)
	for _, c := range v.Deployment.Status.Conditions {
		was := machinefacts.MachineDeploymentCondition(&s.w.Deployment.Status, c.Type)
		switch {
		case was == nil || was.Status != c.Status || was.Reason != c.Reason:
			s.report("  %s is %s/%s: %s", c.Type, c.Status, c.Reason, c.Message)
		case was.LastUpdateTime != c.LastUpdateTime:
			s.report("  %s is %s/%s still, since now", c.Type, c.Status, c.Reason)
		}
	}
	if v.Wake > 0 {
		s.report("  again in %s", v.Wake)
	}
}
