package membership

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// All replicas receive each renewal, and the record of its writers would be half of it.
func TestRenewalsHaveNoRecordOfTheirWriters(t *testing.T) {
	l := newLife(t, Identification{})
	l.store("", "u", nil)
	l.stored.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", Operation: metav1.ManagedFieldsOperationUpdate}}
	l.done(0, Get)
	l.next(0, Update)
	if fields := l.pending.Lease.ManagedFields; len(fields) != 1 || fields[0] != (metav1.ManagedFieldsEntry{}) {
		t.Errorf("got %v, want the one empty entry by which the API server removes the record", fields)
	}
}
