package vm

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	// header is the first line of user data that cloud-init reads as its configuration.
	header = "#cloud-config"
	// mostContent is how many bytes a file has at most: no RenderedMachineConfig has more.
	mostContent = 4 << 20
	// defaultMode is that of a file without permissions.
	defaultMode fs.FileMode = 0o644
)

// CloudConfig describes what a machine does at its first boot: it writes the files, and then runs
// the lines, each also after the one before has failed.
type CloudConfig struct {
	Files []File
	Lines []Line
}

// File is an entry of write_files. Its path is absolute and clean.
type File struct {
	Path    string
	Mode    fs.FileMode
	Content []byte
}

// Line is an entry of runcmd: commands that && joins, each of which runs if the one before has
// succeeded.
type Line []Systemctl

// Verb is the command of systemctl.
type Verb string

// The verbs.
const (
	DaemonReload Verb = "daemon-reload"
	Enable       Verb = "enable"
	Start        Verb = "start"
)

// Systemctl is a call of systemctl.
type Systemctl struct {
	Verb Verb
	// Units are names of services; none for DaemonReload.
	Units []string
}

// document is the form of the YAML.
type document struct {
	WriteFiles []struct {
		Path        string `json:"path"`
		Permissions string `json:"permissions"`
		Encoding    string `json:"encoding"`
		Content     string `json:"content"`
	} `json:"write_files"`
	RunCmd []string `json:"runcmd"`
}

// ParseCloudConfig reads user data. It returns nil without an error for text in which a machine
// finds no more than its bootstrap token: it is neither a
// #cloud-config nor JSON. Errors name the entry: it is not valid, or not supported.
func ParseCloudConfig(userData []byte) (*CloudConfig, error) {
	first, _, _ := bytes.Cut(userData, []byte("\n"))
	if strings.TrimSpace(string(first)) != header {
		if bytes.HasPrefix(bytes.TrimSpace(userData), []byte("{")) {
			return nil, fmt.Errorf("expected %s, got JSON: this machine has no Ignition", header)
		}
		return nil, nil //nolint:nilnil // there is nothing to do
	}
	var d document
	if err := yaml.UnmarshalStrict(userData, &d); err != nil {
		return nil,
			fmt.Errorf("%s: expected write_files, with path, permissions, encoding and content, and runcmd, with one text for each line: %w",
				header, err)
	}
	c := &CloudConfig{}
	for i, f := range d.WriteFiles {
		field := fmt.Sprintf("write_files[%d]", i)
		if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || f.Path == "/" {
			return nil, fmt.Errorf("%s.path: expected an absolute path of a file, got %q", field, f.Path)
		}
		mode, err := parseMode(f.Permissions)
		if err != nil {
			return nil, fmt.Errorf("%s.permissions: %w", field, err)
		}
		content, err := decode(f.Encoding, f.Content)
		if err != nil {
			return nil, fmt.Errorf("%s, the content of %s: %w", field, f.Path, err)
		}
		c.Files = append(c.Files, File{f.Path, mode, content})
	}
	for i, text := range d.RunCmd {
		line, err := parseLine(text)
		if err != nil {
			return nil, fmt.Errorf("runcmd[%d]: %w", i, err)
		}
		c.Lines = append(c.Lines, line)
	}
	return c, nil
}

// parseMode reads octal permissions.
func parseMode(text string) (fs.FileMode, error) {
	if text == "" {
		return defaultMode, nil
	}
	mode, err := strconv.ParseUint(text, 8, 32)
	if err != nil || mode > uint64(fs.ModePerm) {
		return 0, fmt.Errorf("expected octal digits up to 0777 in quotes, got %q", text)
	}
	return fs.FileMode(mode), nil
}

// decode returns the content of a file.
func decode(encoding, text string) ([]byte, error) {
	switch encoding {
	case "":
		return []byte(text), nil
	case "gz+b64":
	default:
		return nil, fmt.Errorf("expected the encoding gz+b64, or none, got %q", encoding)
	}
	compressed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("expected base64: %w", err)
	}
	reader, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, fmt.Errorf("expected gzip: %w", err)
	}
	content, err := io.ReadAll(io.LimitReader(reader, mostContent+1))
	if err != nil {
		return nil, fmt.Errorf("expected gzip: %w", err)
	}
	if len(content) > mostContent {
		return nil, fmt.Errorf("expected at most %d bytes", mostContent)
	}
	return content, nil
}

func parseLine(text string) (line Line, err error) {
	for call := range strings.SplitSeq(text, "&&") {
		command, err := parseSystemctl(strings.Fields(call))
		if err != nil {
			return nil, fmt.Errorf("%w, got %q", err, strings.TrimSpace(call))
		}
		line = append(line, command)
	}
	return line, nil
}

// parseSystemctl reads a call of systemctl.
func parseSystemctl(words []string) (Systemctl, error) {
	if len(words) < 2 || words[0] != "systemctl" {
		return Systemctl{}, errors.New("expected systemctl daemon-reload, enable or start: this machine runs no other command")
	}
	c, units := Systemctl{Verb: Verb(words[1])}, words[2:]
	switch c.Verb {
	case DaemonReload:
		if len(units) > 0 {
			return Systemctl{}, errors.New("expected no unit")
		}
		return c, nil
	case Start:
		if len(units) > 0 && units[0] == "--no-block" {
			units = units[1:] // Services start when all lines are done.
		}
	case Enable:
	default:
		return Systemctl{}, errors.New("expected systemctl daemon-reload, enable or start")
	}
	if len(units) == 0 {
		return Systemctl{}, errors.New("expected units")
	}
	for _, name := range units {
		if !IsService(name) {
			return Systemctl{}, errors.New("expected names of services, such as kubelet.service")
		}
	}
	c.Units = units
	return c, nil
}

// IsService reports whether a text is the name of a service, without parameters.
func IsService(name string) bool {
	stem, isService := strings.CutSuffix(name, ".service")
	return isService && stem != "" && strings.Trim(stem, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}
