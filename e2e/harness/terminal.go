package harness

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// RunOnTerminal runs a command on a terminal with so many columns, and returns what it prints there
// and its exit code. Errors: there is no terminal, or the command was not started.
func RunOnTerminal(cmd *exec.Cmd, columns int) (printed string, code int, err error) {
	screen, program, err := openTerminal(columns)
	if err != nil {
		return "", 0, fmt.Errorf("open a terminal: %w", err)
	}
	defer screen.Close()
	cmd.Stdout, cmd.Stderr = program, program
	err = cmd.Start()
	if closed := program.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return "", 0, err
	}
	content, err := io.ReadAll(screen)
	if errors.Is(err, syscall.EIO) { // all programs have closed it
		err = nil
	}
	if waited, failed := errors.AsType[*exec.ExitError](cmd.Wait()); failed {
		code = waited.ExitCode()
	}
	return strings.ReplaceAll(string(content), "\r\n", "\n"), code, err
}

// openTerminal returns both ends of a new terminal.
func openTerminal(columns int) (screen, program *os.File, err error) {
	screen, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	at := int(screen.Fd())
	err = unix.IoctlSetPointerInt(at, unix.TIOCSPTLCK, 0)
	var number int
	if err == nil {
		number, err = unix.IoctlGetInt(at, unix.TIOCGPTN)
	}
	if err == nil {
		program, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err == nil {
		size := unix.Winsize{Row: 50, Col: uint16(columns)}
		err = unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &size)
	}
	if err != nil {
		return nil, nil, errors.Join(err, screen.Close())
	}
	return screen, program, nil
}
