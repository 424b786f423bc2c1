package container

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// Config is a process and its environment.
type Config struct {
	// Dir is a folder for the container's files, on a file system that can be the upper layer of an
	// overlay. It must not exist, and can be removed when the container has ended.
	Dir string
	// Hostname that it sees.
	Hostname string
	// Args are the program and its arguments. A program without a slash is looked up along PATH of
	// Env.
	Args []string
	// Env is its whole environment, "name=value".
	Env []string
	// WorkingDir is created if it does not exist; "" is the root.
	WorkingDir string
	// Mounts are its volumes.
	Mounts []Mount
	// ReadOnlyRoot keeps it from writing anywhere but to volumes.
	ReadOnlyRoot bool
	// User that it runs as.
	User User
	// Stdout and Stderr are its outputs. The caller closes them.
	Stdout, Stderr *os.File
	// Clock times how leftovers are ended.
	Clock clock.Clock
}

// Mount is a volume.
type Mount struct {
	// Source is a folder or file of the machine, and has to exist.
	Source string
	// Target is a path in the container, and is created if it does not exist.
	Target   string
	ReadOnly bool
}

// User is the user of a container; the zero value is root.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Exit is the result of a container: Code is that of a shell, 128 and the signal if one has ended
// it.
type Exit struct {
	Code int
	At   time.Time
}

// Container is a container that has been started.
type Container struct {
	cmd    *exec.Cmd
	config Config
	space  *namespaces
	done   chan struct{}
	exit   Exit
}

// Start creates a container and starts its process in it. The error is of package exec if it has no
// such program.
func Start(config Config) (*Container, error) {
	if len(config.Args) == 0 {
		return nil, errors.New("a container needs a command")
	}
	c := &Container{config: config, done: make(chan struct{})}
	err := onThreadOfItsOwn(func() error {
		space, err := enterNew(config)
		if err != nil {
			return err
		}
		cmd, err := command(config.Args, config)
		if err == nil {
			cmd.Stdout, cmd.Stderr = config.Stdout, config.Stderr
			err = cmd.Start()
		}
		if err != nil {
			space.close()
			return err
		}
		c.cmd, c.space = cmd, space
		return nil
	})
	if err != nil {
		return nil, err
	}
	go c.wait()
	return c, nil
}

// Done is closed when all processes of the container have ended.
func (c *Container) Done() <-chan struct{} { return c.done }

// Exit returns its result. Call it only after Done is closed.
func (c *Container) Exit() Exit { return c.exit }

// Terminate sends SIGTERM to its main process. It has no effect if that has ended already.
func (c *Container) Terminate() { _ = c.cmd.Process.Signal(syscall.SIGTERM) }

// Kill ends it. It has no effect if it has ended already.
func (c *Container) Kill() { _ = c.cmd.Process.Kill() }

func (c *Container) wait() {
	defer close(c.done)
	_ = c.cmd.Wait() // ProcessState has the result.
	c.exit = Exit{Code: exitCode(c.cmd.ProcessState), At: c.config.Clock.Now()}
	c.space.killAll(c.config.Clock)
	c.space.close()
}

func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// Exec runs a command in the container, and returns its exit code. The command is killed when ctx
// ends.
func (c *Container) Exec(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	if len(args) == 0 {
		return 0, errors.New("there is no command")
	}
	var cmd *exec.Cmd
	err := onThreadOfItsOwn(func() (err error) {
		if err := c.space.enter(); err != nil {
			return err
		}
		if cmd, err = command(args, c.config); err != nil {
			return err
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
		cmd.WaitDelay = outputDelay
		return cmd.Start()
	})
	if err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	_ = cmd.Wait() // ProcessState has the result.
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	return exitCode(cmd.ProcessState), nil
}

// outputDelay is how long the output of a command may stay open when it has ended, held open by a
// process that it has started.
const outputDelay = time.Second

// command is a command in the container that the present thread has entered.
func command(args []string, config Config) (*exec.Cmd, error) {
	path, err := lookPath(args[0], config.Env)
	if err != nil {
		return nil, err
	}
	dir := config.WorkingDir
	if dir == "" {
		dir = "/"
	}
	cmd := &exec.Cmd{Path: path, Args: args, Env: config.Env, Dir: dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !singleUser() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: config.User.UID, Gid: config.User.GID, Groups: config.User.Groups}
	}
	return cmd, nil
}

// onThreadOfItsOwn runs f on a thread that is not used for anything else afterwards, so that f may
// change what otherwise all threads of a process share: namespaces, the root, the working folder.
func onThreadOfItsOwn(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// The main thread does not end, and represents the whole process in /proc. So it is kept busy
			// meanwhile.
			result <- onThreadOfItsOwn(f)
			runtime.UnlockOSThread()
			return
		}
		result <- f()
	}()
	return <-result
}

// lookPath finds a program as a shell would, with the container's PATH.
func lookPath(program string, env []string) (string, error) {
	if strings.Contains(program, "/") {
		return program, nil
	}
	path := ""
	for _, variable := range env {
		if value, ok := strings.CutPrefix(variable, "PATH="); ok {
			path = value
		}
	}
	for _, dir := range filepath.SplitList(path) {
		candidate := filepath.Join(dir, program)
		if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return candidate, nil
		}
	}
	return "", &exec.Error{Name: program, Err: exec.ErrNotFound}
}

// singleUser reports whether there is only one user here, which is so in the user namespace of a
// machine without root.
func singleUser() bool {
	data, err := os.ReadFile("/proc/self/uid_map") // Lines of: first inside, first outside, count.
	fields := bytes.Fields(data)
	return err == nil && len(fields) == 3 && string(fields[2]) == "1"
}
