package orphans

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// switchOff has another manager serve a namespace, or not any more.
func (w *world) switchOff(namespace string) {
	if !w.isIdle() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.off[namespace] = !w.off[namespace]
}

// changeClass deletes a MachineClass with machines that remain, or creates it again.
func (w *world) changeClass(namespace string) {
	name := pick(w, []string{"class-1a", "class-1b", "class-2"})
	if w.control.Get("machineclasses", namespace, name) == nil {
		w.putClass(namespace, name)
	} else if w.isIdle() {
		w.control.Remove("machineclasses", namespace, name)
	}
}

// editAnnotations changes what a tenant may change where the admission policies do not apply,
// except forged ages and approvals.
func (w *world) editAnnotations(namespace string) {
	w.control.Edit("machineclasses", namespace, pick(w, []string{"class-1a", "class-2"}), func(u *unstructured.Unstructured) {
		values := map[string]string{}
		switch w.draw(4) {
		case 0:
			values[v1alpha1.AnnotationOrphans] = "garbage"
		case 1:
			values[v1alpha1.AnnotationDeleteOrphans] = "true"
		case 2:
			values = u.GetAnnotations()
			delete(values, v1alpha1.AnnotationOrphans)
		}
		u.SetAnnotations(values)
	})
}

// adopt has a user create a Machine that names the VM of one that is gone.
func (w *world) adopt() {
	vm := pick(w, w.orphans())
	if vm.ID == "" || vm.Kind != driver.ResourceVM || !w.isIdle() {
		return
	}
	document := machineDocument(vm.Namespace, fmt.Sprint("z", w.draw(1000)), "class-2")
	_ = unstructured.SetNestedField(document, vm.ID, "spec", "providerID")
	w.put("machines", document)
}

// removeForNow removes a machine by hand, and has it come back with a backup.
func (w *world) removeForNow(m machine) {
	if m.name != "" && w.returning == nil {
		w.returning = &returning{machine: m, backup: w.control.Save(), at: time.Now()}
		w.removeByHand(m)
	}
}

// comeBack has that machine come back when it was suspected for a while, and removes it again when
// sweeps have seen it.
func (w *world) comeBack() {
	r := w.returning
	w.mu.Lock()
	lists := w.lists[r.machine.namespace+"/"+accountOf(r.machine.class)]
	w.mu.Unlock()
	switch {
	case !r.back && time.Since(r.at) > 2*w.period && w.isIdle():
		w.saved = &r.backup
		w.restoreWith(true)
		r.back, r.lists = true, lists
		w.mu.Lock()
		w.faults = 0
		w.mu.Unlock()
	case r.back && lists > r.lists+2:
		w.returning = nil
		if o := w.control.Get("machines", r.machine.namespace, r.machine.name); o != nil && o.GetUID() == r.machine.uid {
			w.removeByHand(r.machine)
		}
	}
}

// restore restores a backup of etcd. Sometimes the annotations of classes are not restored.
func (w *world) restore() { w.restoreWith(w.draw(2) == 0) }

func (w *world) restoreWith(newAnnotations bool) {
	if w.saved == nil || !w.isIdle() {
		return
	}
	before, annotations := w.machines(), map[string]map[string]string{}
	for _, o := range w.control.List("machineclasses") {
		annotations[o.GetNamespace()+"/"+o.GetName()] = o.GetAnnotations()
	}
	w.control.Restore(*w.saved)
	w.saved = nil
	w.mu.Lock()
	clear(w.deletions) // the reservations are as old as the backup, see docs/limits.md
	w.mu.Unlock()
	after := w.machines()
	for _, m := range before {
		if !slices.ContainsFunc(after, func(n machine) bool { return n.uid == m.uid }) {
			w.removed(m.uid)
		}
	}
	clear(w.returned)
	if newAnnotations {
		for _, m := range after {
			if !slices.ContainsFunc(before, func(n machine) bool { return n.uid == m.uid }) {
				w.returned[m.uid] = time.Now()
			}
		}
		for _, o := range w.control.List("machineclasses") {
			w.control.Edit("machineclasses", o.GetNamespace(), o.GetName(), func(u *unstructured.Unstructured) {
				u.SetAnnotations(annotations[o.GetNamespace()+"/"+o.GetName()])
			})
		}
	}
	w.tell("restored: %d machines, %d before", len(after), len(before))
}

// changeLeader ends the leadership, by death or not, and another process leads.
func (w *world) changeLeader(t *testing.T) {
	t.Helper()
	if w.leader != nil {
		w.leader.resign()
	}
	for i, p := range w.processes {
		if p.dead.Load() {
			p.kill()
			<-p.done
			w.processes[i] = w.newProcess(t)
		}
	}
	w.leader = pick(w, w.processes)
	w.leader.killAt.Store(-1)
	w.leader.lead()
	w.tell("process %d leads", w.leader.serial)
}

var (
	namedOrphan = regexp.MustCompile(`(?:VM|Disk|NetworkInterface|Address) (\S+) of Machine`)
	namedDigest = regexp.MustCompile(regexp.QuoteMeta(v1alpha1.AnnotationDeleteOrphans) + `=(\w+)`)
)

// approve has a person sometimes approve what is held.
func (w *world) approve(always bool) {
	w.mu.Lock()
	events := w.events
	w.events = nil
	w.mu.Unlock()
	for _, e := range events {
		digest := namedDigest.FindStringSubmatch(e.text)
		if e.reason != v1alpha1.EventOrphansHeld || digest == nil || !always && (strings.Contains(e.text, "and others") || w.draw(6) > 0) {
			continue
		}
		namespace, name, _ := strings.Cut(e.about, "/")
		edited := w.control.Edit("machineclasses", namespace, name, func(u *unstructured.Unstructured) {
			annotations := u.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[v1alpha1.AnnotationDeleteOrphans] = digest[1]
			u.SetAnnotations(annotations)
		})
		if always { // limits are no subject then, and an Event does not name all
			all := w.cloud.All()
			w.mu.Lock()
			for _, i := range all {
				if i.Namespace == namespace && i.Account == accountOf(name) {
					w.approved[i.ID] = true
				}
			}
			w.mu.Unlock()
		}
		for _, named := range namedOrphan.FindAllStringSubmatch(e.text, -1) {
			w.mu.Lock()
			w.approved[named[1]] = w.approved[named[1]] || edited
			w.mu.Unlock()
		}
	}
}
