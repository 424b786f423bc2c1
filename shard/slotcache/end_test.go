package slotcache

import (
	"context"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// A watch ends only when the handler that it has called returns, and this may still use what is
// closed after Run.
func TestRunReturnsWhenAllWatchesHaveEnded(t *testing.T) {
	for name, runOf := range map[string]func(
		machines machineclient.MachineV1alpha1Interface, names metadata.Interface, handle func(),
	) func(context.Context){
		"grants": func(machines machineclient.MachineV1alpha1Interface, _ metadata.Interface, handle func()) func(context.Context) {
			view := objectcache.NewView()
			view.Machines.OnChange(func(_, _ *v1alpha1.Machine) { handle() })
			set := New(clock.RealClock{}, KindOf("Machines", objectcache.FromEach(machines.Machines("")), view.Machines))
			set.Add([]int{1}, set.Open)
			return set.Run
		},
		"classes": func(machines machineclient.MachineV1alpha1Interface, names metadata.Interface, handle func()) func(context.Context) {
			look := func(types.NamespacedName) { handle() }
			return newClasses(t, ClassesConfig{Machines: machines, Metadata: names, View: objectcache.NewView(), Enqueue: look}).Run
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, machines, names := newServer(t)
				handling, handled, ended := false, make(chan struct{}), make(chan struct{})
				run := runOf(machines, names, func() { handling = true; <-handled })
				ctx, stop := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
				go func() {
					defer close(ended)
					run(ctx)
				}()
				within(moment)
				object := inSlot(1)
				object.Finalizers = []string{v1alpha1.FinalizerName}
				s.put("machines", key("m"), object)
				s.put("machineclasses", key("c"), object)
				synctest.Wait()
				stop()
				synctest.Wait()
				select {
				case <-ended:
					t.Error("Run has returned while a handler runs")
				default:
				}
				if !handling {
					t.Error("no handler was called")
				}
				close(handled)
				<-ended
			})
		})
	}
}
