package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// ofInPlace reads what of a deployment is about updates in place.
func (s *story) ofInPlace(key, value string) {
	s.Helper()
	switch key {
	case "manual":
		s.orchestration = v1alpha1.OrchestrationTypeManual
	case "notaint":
		s.w.NoComponentsTaint = true
	case "notarget":
		s.w.NoTarget = true
	case "selecting":
		s.w.Deployment = withSelecting(s.w.Deployment, []chosen{{value, types.UID(value)}})
	default:
		s.Fatalf("what is %q of a deployment?", key)
	}
}

func selectingOf(d *v1alpha1.MachineDeployment) string {
	names := "none"
	for i, c := range selecting(d) {
		if i == 0 {
			names = ""
		}
		names = strings.TrimSpace(names + " " + c.Name)
	}
	return names
}

// node adds the Node of a machine. Its words, with + between them:
//
//	joined        it has nothing of an update
//	candidate     it is a candidate to be updated to b, and the machine's side has seen it
//	unseen        it is a candidate, and the machine controller has not recorded it
//	selected      it is selected, and drained
//	successful    it was updated; failed: it could not be
//	to-c          it is updated to c and not to b; to-nowhere: the set is not recorded
//	come          its machine has come to this set, which may not know it yet
//	waiting       it is updated and free again, and waits for its critical components
//	labelled      a user has selected it, and the machine controller has not recorded it
//	barred        another client has removed the label of a candidate
//	unshown       the cache does not show it
func (s *story) node(set *v1alpha1.MachineSet, m *v1alpha1.Machine, words string) {
	s.Helper()
	m.UID, m.OwnerReferences = types.UID(m.Name), []metav1.OwnerReference{
		*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet")),
	}
	m.Labels, m.Annotations = maps.Clone(set.Spec.Template.Labels), maps.Clone(set.Spec.Template.Annotations)
	m.Labels[v1alpha1.LabelNode] = m.Name + "-node"
	m.Annotations[v1alpha1.AnnotationOrdinal] = "0"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: m.Name + "-node", UID: types.UID(m.Name + "-node"),
		Labels: map[string]string{v1alpha1.LabelMachineName: m.Name}, Annotations: map[string]string{},
	}}
	mark := func(stage string, labels ...string) {
		for i := 0; i < len(labels); i += 2 {
			node.Labels[labels[i]] = labels[i+1]
		}
		node.Annotations[v1alpha1.AnnotationUpdateTo] = "d-b"
		node.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.NodeInPlaceUpdate, Status: corev1.ConditionTrue, Reason: stage}}
	}
	candidate, selected, result := v1alpha1.LabelCandidateForUpdate, v1alpha1.LabelSelectedForUpdate, v1alpha1.LabelUpdateResult
	for word := range strings.SplitSeq(words, "+") {
		switch word {
		case "joined", "unshown":
		case "unseen":
			mark("", candidate, "true")
		case "candidate":
			mark(v1alpha1.NodeReasonCandidateForUpdate, candidate, "true")
		case "labelled":
			mark(v1alpha1.NodeReasonCandidateForUpdate, candidate, "true", selected, "true")
		case "barred":
			delete(node.Labels, candidate)
		case "selected":
			mark(v1alpha1.NodeReasonSelectedForUpdate, candidate, "true", selected, "true")
			node.Spec.Unschedulable = true
		case "successful":
			mark(v1alpha1.NodeReasonUpdateSuccessful, candidate, "true", selected, "true", result, v1alpha1.UpdateResultSuccessful)
			node.Spec.Unschedulable = true
		case "failed":
			mark(v1alpha1.NodeReasonUpdateFailed, candidate, "true", selected, "true", result, v1alpha1.UpdateResultFailed)
			node.Annotations[v1alpha1.AnnotationUpdateFailedReason] = "no space left"
		case "come":
			m.Labels[result] = v1alpha1.UpdateResultSuccessful
		case "to-c":
			node.Annotations[v1alpha1.AnnotationUpdateTo] = "d-c"
		case "to-nowhere":
			delete(node.Annotations, v1alpha1.AnnotationUpdateTo)
		case "waiting":
			node.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintCriticalComponentsNotReady, Effect: corev1.TaintEffectNoSchedule}}
			node.Status.Conditions = []corev1.NodeCondition{
				{Type: v1alpha1.NodeInPlaceUpdate, Status: corev1.ConditionTrue, Reason: v1alpha1.NodeReasonUpdateSuccessful},
			}
		default:
			s.Fatalf("what is %q of a Node?", word)
		}
	}
	if !strings.Contains(words, "unshown") {
		s.w.Nodes[node.Name] = node
	}
}

// doInPlace carries out what is decided about machines and Nodes.
func (s *story) doInPlace(v Verdict) {
	switch v.Do { //nolint:exhaustive // others are done elsewhere
	case WriteNodes:
		for _, node := range v.Nodes {
			s.report("Node %s", describeNode(s.w.Nodes[node.Name], node))
			s.w.Nodes[node.Name] = node
		}
	case WriteMachines:
		s.w.Live = nil
		for _, m := range v.Machines {
			for set, machines := range s.w.Machines {
				if i := slices.IndexFunc(machines, func(other *v1alpha1.Machine) bool { return other.UID == m.UID }); i >= 0 {
					s.report("machine %s", describeMachine(machines[i], m))
					s.w.Machines[set] = slices.Delete(slices.Clone(machines), i, i+1)
				}
			}
			set := metav1.GetControllerOfNoCopy(m).UID
			s.w.Machines[set] = append(s.w.Machines[set], m)
		}
	}
}

// describeNode says what is another about a Node.
func describeNode(was, is *corev1.Node) string {
	words := append([]string{is.Name}, changes(was.Labels, is.Labels)...)
	words = append(words, changes(was.Annotations, is.Annotations)...)
	if was.Spec.Unschedulable != is.Spec.Unschedulable {
		words = append(words, fmt.Sprintf("unschedulable=%v", is.Spec.Unschedulable))
	}
	for _, taint := range is.Spec.Taints {
		words = append(words, "taint "+short(taint.Key)+":"+string(taint.Effect))
	}
	return strings.Join(words, " ")
}

// describeMachine says what is another about a machine.
func describeMachine(was, is *v1alpha1.Machine) string {
	words := []string{is.Name}
	if before, now := metav1.GetControllerOfNoCopy(was), metav1.GetControllerOfNoCopy(is); before.UID != now.UID {
		words = append(words, fmt.Sprintf("of %s, not %s", now.UID, before.UID))
	}
	words = append(words, changes(was.Labels, is.Labels)...)
	words = append(words, changes(was.Annotations, is.Annotations)...)
	return strings.Join(words, " ")
}

func changes(was, is map[string]string) (words []string) {
	keys := maps.Clone(was)
	maps.Copy(keys, is)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		before, had := was[key]
		now, has := is[key]
		switch {
		case has && before != now:
			words = append(words, short(key)+"="+now)
		case had && !has:
			words = append(words, "-"+short(key))
		}
	}
	return words
}

// short is a name without the domain that it is in.
func short(name string) string { return name[strings.LastIndex(name, "/")+1:] }
