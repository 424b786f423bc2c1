package replica

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/golden"
)

// TestALifeIsLoggedOnceForEachStep: a MachineDeployment of one machine is created, rolled to
// another template, and deleted. The lines of the default verbosity are those of a golden file, by
// object, and no key is twice in a line. Passes without effect log nothing.
func TestALifeIsLoggedOnceForEachStep(t *testing.T) {
	o := replicaOptions(func(o *Options) { o.Machine.CreationTimeout, o.Safety.OrphanVMsPeriod = 2*time.Minute, time.Minute })
	log := logged(t, "json", 0)
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		r.logger = klog.Background()
		r.createUnmanaged()
		r.createClass("a")
		root := r.putRoot("a", "d", 1)
		r.start("fleet-0")
		r.until("the machine runs", func() bool { return r.missing() == "" })
		old := r.control.List("machines")[0].GetUID()
		r.relabelTemplate("a", "d", "b")
		r.until("the machine is replaced", func() bool { return r.missing() == "" && r.control.List("machines")[0].GetUID() != old })
		r.until("Nodes that are no machine's are annotated", func() bool {
			return !slices.ContainsFunc(r.target.List("nodes"), func(node *apiserver.Object) bool {
				_, bound := v1alpha1.MachineOf(node)
				return !bound && node.GetAnnotations()[v1alpha1.AnnotationNotManaged] == ""
			})
		})
		r.run(time.Minute, nil)
		before, changes := log.String(), r.oracle.changes
		r.run(atRest(15*time.Minute, time.Hour), nil)
		if n := r.oracle.changes - changes; n > 0 {
			t.Errorf("at rest there are %d writes", n)
		}
		if quiet := strings.TrimPrefix(log.String(), before); quiet != "" {
			t.Errorf("at rest there are lines:\n%s", quiet)
		}
		r.deleteRoot(root)
		r.until("all is gone", func() bool { return len(r.control.List("machines"))+len(r.control.List("machinedeployments")) == 0 })
		r.run(10*time.Second, nil)
	})
	golden.Compare(t, "testdata/life.txt", lifeOf(t, log.String()))
}

// atRest returns how long a test observes a fleet that has nothing to do.
func atRest(short, long time.Duration) time.Duration {
	if testing.Short() {
		return short
	}
	return long
}

// theReplica is the object of lines that name no other.
const theReplica = "the replica"

// lifeOf returns the lines of a log in JSON in the order of their objects, and for each object in
// that of time. Names that differ in each run have a stable form.
func lifeOf(t *testing.T, log string) string {
	t.Helper()
	if os.Getenv("SHOW_LOG") != "" {
		t.Log(log)
	}
	of := map[string][]string{}
	var order []string
	for text := range strings.Lines(log) {
		fields := decodeOnce(t, text)
		if fields["msg"] == "unknown transport type: *replica.link" {
			continue // client-go, of the test's own transport
		}
		object := theReplica
		for _, key := range []string{"machineDeployment", "machineSet", "machine"} {
			if name, ok := fields[key].(map[string]any); ok {
				object = fmt.Sprintf("%s %v/%v", key, name["namespace"], name["name"])
			}
		}
		if _, known := of[object]; !known {
			order = append(order, object)
		}
		of[object] = append(of[object], formatted(fields))
	}
	slices.Sort(of[theReplica]) // its parts work side by side
	var life strings.Builder
	for _, object := range order {
		fmt.Fprintf(&life, "%s\n\t%s\n", object, strings.Join(of[object], "\n\t"))
	}
	return stable(life.String())
}

// decodeOnce decodes an object of JSON, and expects each of its keys once.
func decodeOnce(t *testing.T, text string) map[string]any {
	t.Helper()
	fields := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	if _, err := decoder.Token(); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	for decoder.More() {
		key, err := decoder.Token()
		name, ok := key.(string)
		var value any
		if err != nil || !ok || decoder.Decode(&value) != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if _, twice := fields[name]; twice {
			t.Errorf("key %s is twice in %s", name, text)
		}
		fields[name] = value
	}
	return fields
}

// formatted returns a line as klog writes it in text, without time and place, and with sorted keys.
func formatted(fields map[string]any) string {
	line := fmt.Sprintf("%q", fields["msg"])
	var keys []string
	for key := range fields {
		if !slices.Contains([]string{"ts", "caller", "logger", "msg", "v"}, key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		value := fields[key]
		if name, ok := value.(map[string]any); ok && name["name"] != nil {
			value = name["name"]
			if name["namespace"] != nil {
				value = fmt.Sprint(name["namespace"], "/", name["name"])
			}
		}
		line += fmt.Sprintf(" %s=%q", key, fmt.Sprint(value))
	}
	if v, isInfo := fields["v"]; isInfo && v != float64(0) {
		line += fmt.Sprintf(" at level %v", v)
	}
	return line
}

// stable replaces what differs in each run: UIDs, sessions, hashes in names, times.
func stable(text string) string {
	for _, replace := range []struct{ pattern, prefix string }{
		{`fleet-\d_[a-z0-9]{5}`, "session-"},
		{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, "uid-"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`, "time-"},
	} {
		known := map[string]string{}
		text = regexp.MustCompile(replace.pattern).ReplaceAllStringFunc(text, func(found string) string {
			if known[found] == "" {
				known[found] = fmt.Sprint(replace.prefix, len(known)+1)
			}
			return known[found]
		})
	}
	return text
}
