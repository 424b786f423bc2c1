package vm

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

const (
	// kubeletUnit is the unit of the kubelet.
	kubeletUnit = "kubelet.service"
	// unitDir has the units of user data and the links of those that are enabled, below the root.
	unitDir = "etc/systemd/system"
	// bootTarget pulls in the units that are started at a boot.
	bootTarget = "multi-user.target"
	// kubeletUnitFile is the part of the kubelet's unit that enabling it needs, which belongs to the
	// image and not to user data.
	kubeletUnitFile = "[Install]\nWantedBy=" + bootTarget + "\n"
	// daemonProgram is the machine-config-daemon of the machine's image, for user data.
	daemonProgram = "/usr/local/bin/machine-config-daemon"
)

// software contains what user data puts on a machine and starts, in the place of cloud-init and
// systemd. Only the units of user data and those that every machine has are started, however many
// others a configuration enables.
type software struct {
	config *CloudConfig
	// root has the files of the machine.
	root *os.Root
	// run runs a program of the machine to its end.
	run func(exec []string) error
	// services are the units that every machine has, which run as long as it.
	services []string
	// log is the machine's console.
	log io.Writer

	// tried has the results of units that were started at this boot.
	tried map[string]error
	// running are the services that were started.
	running []string
}

// firstBoot writes the files of user data, calls written, and runs the lines. A line that fails is
// reported, and the next one runs, as in cloud-init. Errors: a file that cannot be written.
func (s *software) firstBoot(written func() error) error {
	for _, f := range s.config.Files {
		if err := s.write(f); err != nil {
			return err
		}
	}
	if err := written(); err != nil {
		return err
	}
	for i, line := range s.config.Lines {
		for _, command := range line {
			if err := s.do(command); err != nil {
				s.report(fmt.Sprintf("runcmd[%d]", i), err)
				break
			}
		}
	}
	return nil
}

// laterBoot starts what is enabled: first what ends, and then what runs as long as the machine.
func (s *software) laterBoot() error {
	wanted, err := s.linked(bootTarget + ".wants")
	if err != nil {
		return err
	}
	start := func(isService bool) {
		for _, name := range wanted {
			if slices.Contains(s.services, name) != isService {
				continue
			}
			if err := s.start(name); err != nil {
				s.report(name, err)
			}
		}
	}
	start(false)
	start(true)
	return nil
}

func (s *software) report(what string, err error) {
	fmt.Fprintf(s.log, "user data: %s: %v\n", what, err)
}

func (s *software) write(f File) error {
	name := strings.TrimPrefix(f.Path, "/")
	if err := s.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return fmt.Errorf("write_files: %w", err)
	}
	err := s.root.WriteFile(name, f.Content, f.Mode)
	if err == nil {
		err = s.root.Chmod(name, f.Mode) // The file may have existed, and the process has an umask.
	}
	if err != nil {
		return fmt.Errorf("write_files: %w", err)
	}
	return nil
}

func (s *software) do(c Systemctl) error {
	act := func(string) error { return nil } // Unit files are read when they are used.
	switch c.Verb {
	case DaemonReload:
	case Enable:
		act = s.enable
	case Start:
		act = s.start
	}
	for _, name := range c.Units {
		if err := act(name); err != nil {
			return fmt.Errorf("systemctl %s %s: %w", c.Verb, name, err)
		}
	}
	return nil
}

// unit reads a unit of user data, or the kubelet's.
func (s *software) unit(name string) (Unit, error) {
	text, err := s.root.ReadFile(path.Join(unitDir, name))
	if errors.Is(err, fs.ErrNotExist) && name == kubeletUnit {
		text, err = []byte(kubeletUnitFile), nil
	}
	if err != nil {
		return Unit{}, fmt.Errorf("the unit: %w", err)
	}
	return ParseUnit(string(text))
}

// enable creates the links of a unit.
func (s *software) enable(name string) error {
	u, err := s.unit(name)
	if err != nil {
		return err
	}
	link := func(dir string) error {
		if err := s.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		err := s.root.Symlink("/"+path.Join(unitDir, name), path.Join(dir, name))
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	for _, other := range u.WantedBy {
		err = errors.Join(err, link(path.Join(unitDir, other+".wants")))
	}
	for _, other := range u.RequiredBy {
		err = errors.Join(err, link(path.Join(unitDir, other+".requires")))
	}
	return err
}

// linked returns the units of user data, and those that every machine has, with a link in a folder
// of unitDir, sorted.
func (s *software) linked(dir string) (names []string, err error) {
	entries, err := fs.ReadDir(s.root.FS(), path.Join(unitDir, dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the enabled units: %w", err)
	}
	for _, entry := range entries {
		if name := entry.Name(); slices.Contains(s.services, name) || s.isOfUserData(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

func (s *software) isOfUserData(unit string) bool {
	return IsService(unit) && slices.ContainsFunc(s.config.Files, func(f File) bool { return f.Path == "/"+path.Join(unitDir, unit) })
}

// start starts a unit at most once, after those that it requires.
func (s *software) start(name string) error {
	if err, isTried := s.tried[name]; isTried {
		return err
	}
	s.tried[name] = errors.New("it requires itself")
	err := s.startNow(name)
	s.tried[name] = err
	return err
}

func (s *software) startNow(name string) error {
	required, err := s.linked(name + ".requires")
	if err != nil {
		return err
	}
	for _, other := range required {
		if err := s.start(other); err != nil {
			return fmt.Errorf("not started, because it requires %s: %w", other, err)
		}
	}
	if slices.Contains(s.services, name) {
		s.running = append(s.running, name)
		return nil
	}
	u, err := s.unit(name)
	if err != nil {
		return err
	}
	if !u.IsOneshot {
		return fmt.Errorf("expected Type=oneshot: this machine has no other services than %s", strings.Join(s.services, ", "))
	}
	return s.run(u.Exec)
}

// firstConfigurationArgs returns the arguments with which the machine-config-daemon of a machine
// runs for a unit of user data: the unit's, with the machine's root as that of the daemon. Errors:
// another program, or another flag.
func firstConfigurationArgs(exec []string) ([]string, error) {
	if len(exec) == 0 || exec[0] != daemonProgram {
		return nil, fmt.Errorf("ExecStart: expected %s, got %q: this machine has no other program for user data", daemonProgram, exec)
	}
	args := machineArgs()
	for _, arg := range exec[1:] {
		flag, file, _ := strings.Cut(arg, "=")
		switch {
		case flag == "--initial" && path.IsAbs(file):
			args = append(args, flag+"="+path.Join(RootDir, path.Clean(file)))
		case arg == "--provisioned":
			args = append(args, arg)
		default:
			return nil, fmt.Errorf("ExecStart: expected --initial with an absolute path, or --provisioned, got %q", arg)
		}
	}
	return args, nil
}

// machineArgs are the arguments of each machine-config-daemon of a machine.
func machineArgs() []string {
	return []string{
		"machine-config-daemon", "--root=" + RootDir, "--systemd=none", "--boot-id-file=" + BootIDPath, "--reboot-command=sh,-c,kill -INT 1",
	}
}
