package drain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// decide returns the decision on the facts.
func (s *story) decide() []string {
	v := Decide(s.facts)
	s.last, s.facts.Memory = v, v.Memory
	switch v.Do {
	case Rest:
		text := "Rest, " + map[State]string{Draining: "draining", Drained: "drained", GivenUp: "given up"}[v.State]
		if v.Cause != "" {
			text += ", " + string(v.Cause)
		}
		if v.Cause != "" && v.Moving > 0 {
			text += fmt.Sprintf(", volumes %d", v.Moving)
		}
		if v.Wake > 0 {
			text += fmt.Sprintf(", wake after %s", v.Wake)
		}
		lines := []string{text}
		if reported := v.Progress.String(); v.State == Draining && reported != "" {
			lines = append(lines, reported)
		}
		return lines
	case Remove:
		var lines []string
		for _, r := range v.Pods {
			lines = append(lines, describe(r))
		}
		for _, a := range v.Attachments {
			lines = append(lines, "Detach "+a.Name)
		}
		return lines
	case RequestRecount:
		return []string{"RequestRecount " + strings.Join(budgetNames(v.Budgets), " and ")}
	case Cordon, List, Watch:
		return []string{string(v.Do)}
	}
	return []string{"no such action: " + string(v.Do)}
}

func describe(r Removal) string {
	text := fmt.Sprintf("%s %s", r.How, r.Pod.Name)
	if len(r.Budgets) > 0 {
		text += ", budgets " + strings.Join(budgetNames(r.Budgets), " and ")
	}
	if r.Moves > 0 {
		text += ", volumes " + fmt.Sprint(r.Moves)
	}
	return text
}

func budgetNames(budgets []*policyv1.PodDisruptionBudget) (names []string) {
	for _, b := range budgets {
		names = append(names, b.Name)
	}
	return names
}

// do executes the last verdict. Refused objects are named: refuse=pod,pod. after=30s is the
// retryAfter of the server, and reason=webhook means that it was no budget. shown=no delays the
// watches, and answer=gone is the server's answer in place of a deletion.
func (s *story) do(o options) {
	refused := strings.Split(o["refuse"], ",")
	attempts := maps.Clone(s.facts.Memory.Attempts)
	if attempts == nil {
		attempts = map[types.UID]Attempt{}
	}
	var after time.Duration
	if o.has("after") {
		after = mustDuration(o["after"])
	}
	for _, r := range s.last.Pods {
		if slices.Contains(refused, r.Pod.Name) {
			attempts[r.Pod.UID] = Refused(s.facts.Now, r.How, o["reason"] == "", after, "no, says the server")
			continue
		}
		attempts[r.Pod.UID] = Accepted(attempts[r.Pod.UID], s.facts.Now, r.How, o["answer"])
		switch {
		case o["shown"] == "no":
		case r.How == Delete:
			s.gone(r.Pod.Name, nil)
		default:
			s.pod(r.Pod.Name, options{"ending": ""})
		}
	}
	for _, a := range s.last.Attachments {
		attempts[a.UID] = Accepted(attempts[a.UID], s.facts.Now, Delete, "")
		if o["shown"] != "no" {
			a.DeletionTimestamp = &metav1.Time{Time: s.facts.Now}
		}
	}
	s.facts.Memory.Attempts = attempts
	switch s.last.Do { //nolint:exhaustive // the others are done above
	case RequestRecount:
		for _, b := range s.last.Budgets {
			if slices.Contains(refused, b.Name) {
				s.facts.Memory = s.facts.Memory.RequestFailed(b.UID, "no, says the server")
				continue
			}
			s.write(b.Name, func(b *policyv1.PodDisruptionBudget) { b.Status.ObservedGeneration = 0 })
		}
	case Cordon:
		s.facts.Node = s.facts.Node.DeepCopy()
		s.facts.Node.Spec.Unschedulable, s.facts.Live = true, false
	case List:
		s.facts.Live, s.facts.Sight = true, max(s.facts.Sight, Listed)
	case Watch:
		s.facts.Sight = Awaited
	}
}
