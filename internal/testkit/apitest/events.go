package apitest

import (
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// EventLog is an EventRecorder that keeps the Events. The zero value has none.
type EventLog struct {
	mu    sync.Mutex
	all   []string
	texts map[string][]string // messages by reason
}

// Eventf is events.EventRecorder's.
func (l *EventLog) Eventf(_, _ runtime.Object, eventtype, reason, _, note string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.texts == nil {
		l.texts = map[string][]string{}
	}
	l.all, l.texts[reason] = append(l.all, eventtype+" "+reason), append(l.texts[reason], fmt.Sprintf(note, args...))
}

// Texts returns the messages of the Events with a reason, the first one first.
func (l *EventLog) Texts(reason string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.texts[reason])
}

// List returns type and reason of all Events, the first one first.
func (l *EventLog) List() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// Count returns how many of the Events have the reason, and the type of its row.
func (l *EventLog) Count(reason v1alpha1.EventReason) (n int) {
	severity := corev1.EventTypeNormal
	if reason.Warning {
		severity = corev1.EventTypeWarning
	}
	for _, reported := range l.List() {
		if reported == severity+" "+reason.Reason {
			n++
		}
	}
	return n
}
