package slotlabel

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// report reports on the roots of a tree that the label of one of its objects is refused: none of
// the tree is reconciled then, because a MachineSet that does not see all of its machines would
// create others in their place, and no status would say so. It is reported once for each reason.
// refused is false for errors that pass by themselves.
func (l *Labeler) report(tree policy.Tree, o policy.Object, err error) (refused bool) {
	if !isRefused(err) {
		return false
	}
	at := object{o.Kind, o.Key()}
	l.mu.Lock()
	known := l.refused[at] == err.Error()
	l.refused[at] = err.Error()
	l.mu.Unlock()
	if known {
		return true
	}
	result := "nothing of this object is reconciled until it can be written"
	if o.Kind == policy.Node {
		result = "its machine has no Node until it can be written"
	}
	for _, root := range tree.Roots {
		ref := root.Ref()
		telemetry.EmitUnlogged(l.cfg.Events, &ref, v1alpha1.EventNotLabeled,
			fmt.Sprintf("%s %s cannot be labeled with its slot, and %s: %v", o.Kind, o.Name, result, err))
	}
	return true
}

// isRefused reports whether an API server, one of its webhooks or policies has refused a write, so
// that the same write is refused again until a person changes something.
func isRefused(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	switch code := answer.Status().Code; code {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	default:
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError
	}
}
