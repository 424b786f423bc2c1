package fence

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

func TestSweepsAreFenced(t *testing.T) {
	s := newStand(t)
	inner, calls := counting()
	d, ok := driver.SweeperOf(s.Driver(inner))
	if !ok {
		t.Fatal("the Sweeper of a driver is not found below the Fence")
	}
	s.BeginLeading()
	s.MoveLeaderFence(s.time.Moment().Add(time.Second))
	leading, done, ok := s.Lead(t.Context())
	if !ok {
		t.Fatal("the leader may not lead")
	}
	defer done()
	list := func(ctx context.Context) error {
		_, err := d.ListResources(ctx, driver.ListResourcesRequest{})
		return err
	}
	remove := func(ctx context.Context) error {
		_, err := d.DeleteResource(ctx, driver.DeleteResourceRequest{Resource: driver.Resource{Namespace: "n", Machine: "m"}})
		return err
	}
	ended, end := context.WithCancel(leading)
	if end(); !errors.Is(remove(ended), context.Canceled) || *calls != 0 {
		t.Errorf("%d calls under a context that has ended", *calls)
	}
	for _, step := range []struct {
		name    string
		prepare func()
		do      func(context.Context) error
		leads   bool
		want    Refusal
	}{
		{"list", func() {}, list, true, ""},
		{"list without an ownership", func() {}, list, false, ""},
		{"delete", func() {}, remove, true, ""},
		{"delete without an ownership", func() {}, remove, false, Unowned},
		{"delete at the fence of the leadership", func() { s.clock.Step(time.Second) }, remove, true, Fenced},
		{"list at the fence of the leadership", func() {}, list, true, Fenced},
		{"delete after a renewal", func() { s.MoveLeaderFence(s.time.Moment().Add(time.Second)) }, remove, true, ""},
		{"delete without the leadership", func() { s.leadership.set(0, false) }, remove, true, Lost},
	} {
		step.prepare()
		before, under := *calls, t.Context()
		if step.leads {
			under = leading
		}
		err := step.do(under)
		if step.want != "" {
			wantRefused(t, step.name, err, step.want)
		}
		if called := *calls - before; (step.want == "") != (err == nil && called == 1) {
			t.Errorf("%s: %v after %d calls", step.name, err, called)
		}
	}
	before := *calls
	if _, err := d.Scope(driver.ScopeRequest{}); err != nil || *calls != before+1 {
		t.Errorf("Scope, which sends no request: %v", err)
	}
	var refused *RefusedError
	if err := remove(t.Context()); !errors.As(err, &refused) || refused.What != "delete_resource n/m" {
		t.Errorf("%v, want the refusal of delete_resource n/m", err)
	}
}

func TestFencedDriverWithoutSweeper(t *testing.T) {
	s := newStand(t)
	inner, _ := counting()
	fenced := s.Driver(struct{ driver.Driver }{inner})
	if _, ok := driver.SweeperOf(fenced); ok {
		t.Error("a driver without a Sweeper has one below the Fence")
	}
	d, _ := fenced.(driver.Sweeper)
	ctx, done := s.own(t)
	defer done()
	_, err1 := d.Scope(driver.ScopeRequest{})
	_, err2 := d.ListResources(ctx, driver.ListResourcesRequest{})
	_, err3 := d.DeleteResource(ctx, driver.DeleteResourceRequest{})
	for _, err := range []error{err1, err2, err3} {
		if driver.CodeOf(err) != driver.Unimplemented {
			t.Errorf("%v, want Unimplemented", err)
		}
	}
}
