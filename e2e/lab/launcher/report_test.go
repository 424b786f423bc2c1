package launcher

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// connected returns both ends; the launcher's is a file descriptor that ReportTo may close.
func connected(t *testing.T) (ours net.Conn, fd int) {
	t.Helper()
	ours, theirs, err := connection()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	fd, err = unix.FcntlInt(theirs.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	return ours, fd
}

func TestReport(t *testing.T) {
	for name, test := range map[string]struct {
		launcher func(say func(string), ready func(), end func(error))
		said     []string
		want     string
	}{
		"ready": {
			func(say func(string), ready func(), end func(error)) { say("one"); say("two"); ready(); end(nil) }, []string{"one", "two"}, "",
		},
		"failed":   {func(say func(string), _ func(), end func(error)) { say("one"); end(errors.New("broken")) }, []string{"one"}, "broken"},
		"at once":  {func(_ func(string), _ func(), end func(error)) { end(errors.New("broken")) }, nil, "broken"},
		"vanished": {nil, nil, errVanished.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			ours, fd := connected(t)
			if test.launcher == nil {
				_ = unix.Close(fd)
			} else {
				ctx, say, ready, end, err := ReportTo(t.Context(), uintptr(fd))
				if err != nil {
					t.Fatal(err)
				}
				go test.launcher(say, ready, end)
				defer func() { <-ctx.Done() }()
			}
			var said []string
			err := follow(ours, func(text string) { said = append(said, text) })
			if diff := cmp.Diff(test.said, said); diff != "" {
				t.Errorf("said (-want +got):\n%s", diff)
			}
			if (err == nil) != (test.want == "") || err != nil && err.Error() != test.want {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// When lab up disconnects, the boot is cancelled; after the lab is ready, that has no effect.
func TestBootIsCancelled(t *testing.T) {
	ours, fd := connected(t)
	ctx, _, _, end, err := ReportTo(t.Context(), uintptr(fd))
	if err != nil {
		t.Fatal(err)
	}
	_ = ours.Close()
	<-ctx.Done()
	end(ctx.Err())

	ours, fd = connected(t)
	ctx, _, ready, end, err := ReportTo(t.Context(), uintptr(fd))
	if err != nil {
		t.Fatal(err)
	}
	ready()
	_ = ours.Close()
	if err := ctx.Err(); err != nil {
		t.Errorf("a lab that is ready: %v", err)
	}
	end(nil)
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.Error("the end is not the end")
	}
}
