package lifecycle

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/preserve"
)

func setOnNode(w *World, value string) error { return merge(w.Node.Node, value) }

func setRefused(w *World, value string) (err error) {
	w.Node.Refused = "what the API server says"
	w.Node.RefusedUntil, err = moment(strings.TrimPrefix(value, "until "))
	return err
}

func setFought(w *World, value string) (err error) {
	w.Node.RestUntil, err = moment(strings.TrimPrefix(value, "until "))
	return err
}

func setTarget(w *World, value string) error {
	if w.NoTarget = value == "none"; !w.NoTarget {
		w.TargetProblem = value
	}
	return nil
}

var drainWords = map[string]preserve.Drain{
	"running": preserve.DrainRunning, "done": preserve.DrainDone, "failed": preserve.DrainFailed, "forced": preserve.DrainForced,
}

func setDrained(w *World, value string) error {
	word, again, until := strings.Cut(value, " until ")
	state, known := drainWords[word]
	if !known {
		return fmt.Errorf("expected one of %v, got %q", drainWords, value)
	}
	w.PreservedDrain = PreservedDrain{State: state}
	if !until {
		return nil
	}
	d, err := time.ParseDuration(again)
	w.PreservedDrain.Again = born.Add(d)
	return err
}

// patched returns what an API server stores after a patch of a Node.
func patched(t interface{ Fatal(args ...any) }, node *corev1.Node, patch *nodesync.Patch) *corev1.Node {
	before, err1 := json.Marshal(node)
	change, err2 := json.Marshal(patch.Body)
	after, err3 := strategicpatch.StrategicMergePatch(before, change, corev1.Node{})
	n := &corev1.Node{}
	err4 := json.Unmarshal(after, n)
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}
