package machine

import (
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
)

// testCluster is a cluster like that of fake.NewClientset, except that a watch shows all changes since the list whose version it
// names, that pods can be selected by their Node, and that fields are not managed, which takes most of the time.
type testCluster struct {
	clienttesting.ObjectTracker // the objects as they are, for those who do not ask an API server

	client *fake.Clientset
	react  clienttesting.ReactionFunc

	mu    sync.Mutex
	lists []listed
}

// listed is a received list request.
type listed struct {
	action clienttesting.ListActionImpl
	found  map[string]runtime.Object
}

func newTestCluster() *testCluster {
	tracker := clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	c := &testCluster{ObjectTracker: tracker, client: &fake.Clientset{}, react: clienttesting.ObjectReaction(tracker)}
	c.client.AddReactor("list", "*", c.list)
	c.client.AddReactor("*", "*", c.react)
	c.client.AddWatchReactor("*", c.watch)
	return c
}

// list answers a list, whose version is its number.
func (c *testCluster) list(action clienttesting.Action) (bool, runtime.Object, error) {
	l := listed{}
	l.action, _ = action.(clienttesting.ListActionImpl)
	answer, items, err := c.selected(l.action)
	if err != nil {
		return true, nil, err
	}
	l.found = items
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists = append(c.lists, l)
	list, err := meta.ListAccessor(answer)
	if err != nil {
		return true, nil, err
	}
	list.SetResourceVersion(strconv.Itoa(len(c.lists)))
	return true, answer, nil
}

// selected are the objects of a list, as the answer to it, and each by itself.
func (c *testCluster) selected(action clienttesting.ListActionImpl) (answer runtime.Object, items map[string]runtime.Object, err error) {
	if _, answer, err = c.react(action); err != nil {
		return nil, nil, err
	}
	items = map[string]runtime.Object{}
	var some []runtime.Object
	err = meta.EachListItem(answer, func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		if err != nil || !isSelected(o, action.GetListRestrictions().Fields) {
			return err
		}
		items[m.GetNamespace()+"/"+m.GetName()+"/"+string(m.GetUID())] = o.DeepCopyObject()
		some = append(some, o.DeepCopyObject())
		return nil
	})
	if err == nil {
		err = meta.SetList(answer, some)
	}
	return answer, items, err
}

func isSelected(o runtime.Object, by fields.Selector) bool {
	p, ok := o.(*corev1.Pod)
	return !ok || by == nil || by.Matches(fields.Set{"spec.nodeName": p.Spec.NodeName})
}

// watch answers a watch. It begins with the current objects, which may repeat those of the list.
func (c *testCluster) watch(action clienttesting.Action) (bool, watch.Interface, error) {
	of, _ := action.(clienttesting.WatchActionImpl)
	number, err := strconv.Atoi(of.GetWatchRestrictions().ResourceVersion)
	if err != nil {
		return true, nil, err
	}
	from, err := c.Watch(of.GetResource(), of.GetNamespace())
	if err != nil {
		return true, nil, err
	}
	c.mu.Lock()
	before := c.lists[number-1]
	c.mu.Unlock()
	_, now, err := c.selected(before.action)
	if err != nil {
		return true, nil, err
	}
	var missed []watch.Event
	for key, o := range before.found {
		if _, stays := now[key]; !stays {
			missed = append(missed, watch.Event{Type: watch.Deleted, Object: o})
		}
	}
	for _, o := range now {
		missed = append(missed, watch.Event{Type: watch.Modified, Object: o})
	}
	return true, passOn(missed, from, of.GetWatchRestrictions().Fields), nil
}

// passOn is a watch that shows some events, and then those of another watch that are selected.
func passOn(first []watch.Event, then watch.Interface, by fields.Selector) watch.Interface {
	events := make(chan watch.Event)
	all := watch.NewProxyWatcher(events)
	send := func(e watch.Event) bool {
		select {
		case <-all.StopChan():
			return false
		case events <- e:
			return true
		}
	}
	go func() {
		defer then.Stop()
		for _, e := range first {
			if !send(e) {
				return
			}
		}
		for {
			select {
			case <-all.StopChan():
				return
			case e := <-then.ResultChan():
				if isSelected(e.Object, by) && !send(e) {
					return
				}
			}
		}
	}()
	return all
}
