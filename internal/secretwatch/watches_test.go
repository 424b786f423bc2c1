package secretwatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// key of the Secret of these tests.
var key = types.NamespacedName{Namespace: "n", Name: "s"}

func secret(data string, change ...func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "u"},
		Data:       map[string][]byte{"key": []byte(data), "other": []byte("same")},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func going(finalizers ...string) func(*corev1.Secret) {
	return func(s *corev1.Secret) {
		s.DeletionTimestamp, s.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, finalizers
	}
}

func TestPrintDependsOnTheData(t *testing.T) {
	one := Print(secret("one"))
	for _, tc := range []struct {
		name string
		s    *corev1.Secret
		want bool // that it is the same
	}{
		{"the same", secret("one"), true},
		{"other metadata", secret("one", func(s *corev1.Secret) {
			s.ResourceVersion, s.Labels, s.Finalizers = "7", map[string]string{"a": "b"}, []string{"f"}
		}), true},
		{"going, and held", secret("one", going(v1alpha1.SecretFinalizerName)), true},
		{"other data", secret("two"), false},
		{"the data under another key", secret("same", func(s *corev1.Secret) { s.Data["other"] = []byte("one") }), false},
		{"another Secret with the same data", secret("one", func(s *corev1.Secret) { s.UID = "v" }), false},
	} {
		if got := Print(tc.s) == one; got != tc.want || Print(tc.s) == "" {
			t.Errorf("%s: %q, the first is %q", tc.name, Print(tc.s), one)
		}
	}
	for name, s := range map[string]*corev1.Secret{"none": nil, "going, and not to be held": secret("one", going("x"))} {
		if got := Print(s); got != "" {
			t.Errorf("%s: %q, want none", name, got)
		}
	}
}

// bench has Watches run before an API server whose watches begin with what is there, as real ones
// do.
type bench struct {
	*testing.T

	watches *Watches

	mu       sync.Mutex
	there    *corev1.Secret // nil for none
	open     []*watch.RaceFreeFakeWatcher
	asked    []string // field selectors
	refusal  error
	happened []string
}

func inBench(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, client := &bench{T: t}, &fake.Clientset{}
		client.AddWatchReactor("secrets", b.answer)
		client.AddReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			t.Errorf("it asks for more than a watch: %s", a.GetVerb())
			return true, nil, errors.New("not allowed")
		})
		var err error
		b.watches, err = New(Config{
			Client: client.CoreV1(), Clock: clock.RealClock{}, Changed: func(k types.NamespacedName) { b.note("changed " + k.Name) },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{})) // what fails here is meant to
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			b.watches.Run(ctx)
		}()
		test(b)
		stop()
		<-ended
	})
}

func (b *bench) answer(action clienttesting.Action) (bool, watch.Interface, error) {
	asked, _ := action.(clienttesting.WatchAction)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, asked.GetNamespace()+": "+asked.GetWatchRestrictions().Fields.String())
	if b.refusal != nil {
		return true, nil, b.refusal
	}
	w := watch.NewRaceFreeFake()
	if b.there != nil {
		w.Add(b.there)
	}
	b.open = append(b.open, w)
	return true, w, nil
}

// becomes has the Secret be another, or go.
func (b *bench) becomes(s *corev1.Secret) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.there
	b.there = s
	for _, w := range b.open {
		switch {
		case w.IsStopped():
		case s == nil:
			w.Delete(before)
		case before == nil:
			w.Add(s)
		default:
			w.Modify(s)
		}
	}
}

// server changes the API server without an event of a watch.
func (b *bench) server(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// watched counts the watches that are open.
func (b *bench) watched() (n int) {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.open {
		if !w.IsStopped() {
			n++
		}
	}
	return n
}

func (b *bench) note(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.happened = append(b.happened, line)
}

// expect compares what has happened since the last call, when no goroutine can continue.
func (b *bench) expect(when string, want ...string) {
	b.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.happened, want) {
		b.Errorf("%s: %q, want %q", when, b.happened, want)
	}
	b.happened = nil
}

func (b *bench) await(who types.UID, seen *corev1.Secret) {
	b.watches.Await(who, map[types.NamespacedName]string{key: Print(seen)}, func() { b.note("wake " + string(who)) })
}

func TestWaitersAreNotifiedOfOtherData(t *testing.T) {
	inBench(t, func(b *bench) {
		b.there = secret("one")
		b.await("a", secret("one"))
		b.expect("nothing is new", "changed s") // what was read may be older
		b.becomes(secret("one", func(s *corev1.Secret) { s.Finalizers = []string{"f"} }))
		b.expect("other metadata")
		b.becomes(secret("two"))
		b.expect("other data", "changed s", "wake a")
		b.await("a", secret("one"))
		b.expect("he was woken and has not seen it yet")
		b.await("a", secret("two"))
		b.becomes(nil)
		b.expect("it is deleted", "changed s", "wake a")
		b.await("a", nil)
		b.becomes(secret("three"))
		b.expect("it is created again", "changed s", "wake a")
		if want := []string{"n: metadata.name=s"}; !slices.Equal(b.asked, want) {
			t.Errorf("watches of %q, want %q", b.asked, want)
		}
	})
}

func TestChangesBeforeTheWaitCount(t *testing.T) {
	inBench(t, func(b *bench) {
		b.there = secret("two")
		b.await("a", secret("one"))
		b.expect("before the watch began", "changed s", "wake a")
		b.await("b", secret("one"))
		b.expect("before the second one began to wait", "wake b")
		b.await("c", secret("two"))
		b.expect("the third one knows it")
	})
}

func TestWatchRunsWhileACallerWaits(t *testing.T) {
	inBench(t, func(b *bench) {
		b.await("a", nil)
		b.await("b", nil)
		if n := b.watched(); n != 1 {
			t.Errorf("%d watches for two who wait, want one", n)
		}
		b.watches.Forget("a")
		b.watches.Forget("a")
		if n := b.watched(); n != 1 {
			t.Errorf("%d watches while one waits", n)
		}
		b.expect("so far")
		b.becomes(secret("one"))
		b.expect("one has left", "changed s", "wake b")
		b.watches.Await("b", map[types.NamespacedName]string{{Namespace: "n", Name: "other"}: ""}, func() {})
		b.becomes(nil)
		b.expect("he waits for something else")
		b.watches.Forget("b")
		if n := b.watched(); n != 0 || b.watches.Len() > 0 || len(b.watches.awaited) > 0 {
			t.Errorf("%d watches, %d Secrets, %d who wait; want none", n, b.watches.Len(), len(b.watches.awaited))
		}
		b.await("c", nil)
		b.becomes(secret("two"))
		b.expect("another machine waits later", "changed s", "wake c")
	})
}

// An API server ends watches after a while, and answers none while it is down or does not allow
// them.
func TestEndedWatchIsRestarted(t *testing.T) {
	inBench(t, func(b *bench) {
		b.there = secret("one")
		b.await("a", secret("one"))
		b.expect("at first", "changed s")
		b.server(func() {
			b.open[0].Stop()
			b.there = secret("two")
		})
		time.Sleep(2 * time.Second)
		b.expect("it changes in between", "changed s", "wake a")
		b.await("a", secret("two"))
		b.server(func() {
			b.refusal = errors.New("forbidden")
			b.open[1].Error(&metav1.Status{Reason: metav1.StatusReasonExpired})
		})
		b.expect("it breaks", "changed s", "wake a")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		wakes := 0
		for _, line := range b.happened {
			if line == "wake a" {
				wakes++
			}
		}
		if wakes < 6 || wakes > 16 {
			t.Errorf("woken %d times in 5 min in which nothing can be watched, want some", wakes)
		}
		b.server(func() { b.refusal, b.happened = nil, nil })
		time.Sleep(longestPause + longestPause/2)
		b.expect("it can be watched again")
		b.becomes(secret("three"))
		b.expect("after that", "changed s", "wake a")
	})
}

// However many Secrets the machines of a namespace name, some of them are watched, and none of
// another namespace waits for that.
func TestWatchesOfANamespaceAreBounded(t *testing.T) {
	inBench(t, func(b *bench) {
		wait := func(namespace string, i int) time.Duration {
			name := fmt.Sprint("s", i)
			return b.watches.Await(types.UID(namespace+name), map[types.NamespacedName]string{{Namespace: namespace, Name: name}: ""}, func() {})
		}
		for i := range mostWatched {
			if again := wait("n", i); again > 0 {
				t.Fatalf("Secret %d is not watched, want %d", i, mostWatched)
			}
		}
		for after, want := range map[time.Duration]time.Duration{
			0: shortestPoll, 3 * time.Minute: shortestPoll, 20 * time.Minute: 5 * time.Minute, 48 * time.Hour: longestPoll,
		} {
			wait("n", mostWatched)
			time.Sleep(after)
			if again := wait("n", mostWatched); again != want {
				t.Errorf("after %s: looks again in %s, want %s", after, again, want)
			}
			b.watches.Forget("ns" + types.UID(fmt.Sprint(mostWatched)))
		}
		if again := wait("n", 0); again > 0 || b.watches.Len() != mostWatched {
			t.Errorf("one that is watched: again in %s, %d watches", again, b.watches.Len())
		}
		if again := wait("other", 0); again > 0 {
			t.Errorf("of another namespace: again in %s, want that it is watched", again)
		}
		b.watches.Forget("ns7")
		if again := wait("n", mostWatched); again > 0 || b.watches.Len() != mostWatched+1 {
			t.Errorf("after another has ended: again in %s, %d watches", again, b.watches.Len())
		}
		for i := range mostWatched + 1 {
			b.watches.Forget(types.UID(fmt.Sprint("ns", i)))
		}
		b.watches.Forget("others0")
		if b.watches.Len() > 0 || len(b.watches.watched) > 0 || len(b.watches.crowded) > 0 || len(b.watches.awaited) > 0 {
			t.Errorf("left: %d watches, %v, %v, %v", b.watches.Len(), b.watches.watched, b.watches.crowded, b.watches.awaited)
		}
	})
}
